"""What is kept of SQLite's forms of words is what its index holds."""

from __future__ import annotations

import pytest

from memory.retrieval.stored_forms import MOST_FORMS, StoredForms
from memory.search.postings import Stale


def test_words_are_stemmed_and_numbers_are_not_kept():
    forms = StoredForms()
    words = ["boats", "swimming", "tea", "2023", "0000000003"]
    assert [forms.look_up(words, "s4x")[w] for w in words] == [
        *("boat", "swim", "tea", "2023", "0000000003"),
    ]
    assert forms.keys() == {"boats", "swimming", "tea"}
    with pytest.raises(KeyError):
        forms["unmet"]


def test_a_word_that_the_index_splits_is_refused_where_all_of_it_counts():
    forms = StoredForms()
    with pytest.raises(Stale):
        forms.look_up(["tea\u19b0cup"], "s4x", keep_all=True)
    long_word = "x" * 40 + "ing"
    assert forms.look_up([long_word], "s4x")[long_word]
    assert long_word not in forms


def test_so_many_forms_are_kept_at_most():
    forms = StoredForms()
    for start in range(0, 2 * MOST_FORMS, 1000):
        words = [f"w{number}" for number in range(start, start + 1000)]
        found = forms.look_up(words, "s4x")
        assert [found[w] for w in words] == words
        assert len(forms) <= MOST_FORMS
