"""A word finds its irregular forms, in languages whose letters tell them apart."""

from __future__ import annotations

import pytest

from memory.search.irregular import forms_of
from memory.search.languages.irregular_words import IRREGULAR
from memory.search.query import query_terms
from memory.search.text_terms import query_words, text_words


@pytest.mark.parametrize("group", IRREGULAR)
def test_each_form_finds_each_other_one(group):
    forms = group.split()
    for asked in forms:
        (word,) = query_words(asked)
        found = forms_of(word)
        for told in forms:
            assert not set(text_words(told).words).isdisjoint(found), (asked, told)


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Чем больна моя дочь?", "У моей дочери Оттилии астма."),
        ("Как зовут моих сыновей?", "Мой сын Павел учится в Лионе."),
        ("Сколько лет моему ребенку?", "У меня двое детей."),
        ("ما أسماء أطفالي؟", "لدي طفل اسمه يوسف."),
        ("ما الأدوية التي آخذها؟ أدويتي", "آخذ دواء للربو."),
    ],
)
def test_a_question_shares_a_term_with_what_was_told_in_another_form(question, fact):
    words = set(text_words(fact).words)
    terms = query_terms(question, thorough=False).terms
    assert any(not words.isdisjoint(term.words) for term in terms)


def test_a_regular_word_has_its_own_forms_alone():
    for text in ("Orgel", "табуретка", "orchestra", "دراجة"):
        (word,) = query_words(text)
        assert forms_of(word) == word.forms
