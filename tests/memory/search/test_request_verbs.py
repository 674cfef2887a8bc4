"""The verb of a request says what is to be done, and not what it is about."""

from __future__ import annotations

import pytest

from memory.search.query import query_terms
from memory.search.request_verbs import leading_word, request_verbs


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("Translate this letter into Finnish.", "translate"),
        ("Thanks! Please compare both trains.", "compare"),
        ("Beschreibe mir den Weg zum Bahnhof.", "beschreibe"),
        ("Traduis cette lettre en finnois.", "traduis"),
        ("Traduce esta carta al finés.", "traduce"),
        ("Descreva o caminho até a estação.", "descreva"),
        ("Переведи письмо на финский.", "переведи"),
    ],
)
def test_a_verb_that_asks_for_work_is_no_subject(text, verb):
    assert request_verbs(text) == {verb}
    terms = query_terms(text, thorough=False).terms
    assert any(term.is_topical for term in terms)
    assert not any(term.is_topical for term in terms if verb in term.words)


def test_the_same_word_elsewhere_is_a_subject():
    assert request_verbs("Which translate button is broken?") == frozenset()
    assert leading_word("¿puedes ayudarme?") == "puedes"
    assert leading_word("") == ""
