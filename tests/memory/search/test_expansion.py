"""Words of the best hits widen a query, and never outweigh its own."""

from __future__ import annotations

import pytest

from memory.search.expansion import ADDED, LOOKED_UP, MAX_RELATED, QUERY_SHARE, related_words, widen
from memory.search.ranking import Matches


def test_words_of_better_hits_and_of_several_hits_count_more():
    hits = [("we went surfing at dawn", 2.0), ("surfing again", 1.0)]
    found = related_words({"dawn"}, hits)
    assert found["surfing"] == 1.5
    assert all(score <= 1.0 for word, score in found.items() if word != "surfing")
    # The query has it.
    assert "dawn" not in found
    # Says nothing.
    assert "at" not in found


def test_what_is_looked_up_is_bounded():
    hits = [(" ".join(f"word{i}" for i in range(1000)), 1.0)]
    assert len(related_words(set(), hits)) == LOOKED_UP
    assert related_words(set(), []) == {}
    assert related_words(set(), [("nothing scored", 0.0)]) == {}


def test_chinese_is_looked_up_in_pairs_of_characters():
    assert set(related_words(set(), [("我喜欢茶", 1.0)])) == {"我喜", "喜欢", "欢茶"}


@pytest.mark.parametrize("many", [1, ADDED, LOOKED_UP])
def test_all_related_words_together_add_a_share_of_the_querys_own_weight(many):
    words = {f"w{i}": 1.0 for i in range(many)}
    matches = Matches({1: 4.0}, asked=5.0, size=1000)
    wide = widen(matches, words, [[1, 2]] * many)
    assert wide.weight[2] == pytest.approx(QUERY_SHARE * 5.0)
    assert wide.weight[1] == pytest.approx(4.0 + QUERY_SHARE * 5.0)
    assert wide.own == matches.weight == {1: 4.0}


def test_a_frequent_word_and_one_that_nothing_has_add_nothing():
    matches = Matches({1: 4.0}, asked=5.0, size=100_000)
    wide = widen(matches, {"a": 1.0, "b": 1.0}, [list(range(MAX_RELATED)), []])
    assert wide.weight == matches.weight
    small = Matches({1: 4.0}, asked=5.0, size=20)
    # A tenth of all has it.
    assert widen(small, {"a": 1.0}, [[2, 3]]).weight == small.weight


def test_a_tags_or_speakers_name_finds_what_bears_it_and_nothing_else():
    matches = Matches(named={1, 2}, asked=5.0, size=1000)
    assert widen(matches, {"a": 1.0}, [[3]]).best() == [2, 1]
