"""What text becomes before it is indexed, and what a query becomes before it is matched."""
from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search import iso, match, parse_time, passages_of, split_cjk, spoken_day, terms

words = st.text(max_size=60) | st.sampled_from(['"', "a OR b", "NEAR(x y)", "scope : s2", "a*", "-a", "(", "喝茶 tea", "what is it"])


@pytest.fixture(scope="module")
def index():
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(scope, body, speaker, prev, day, tokenize='porter unicode61')")
    for scope, body in (("s1", "Ada likes green tea"), ("s2", "Bob likes green tea"), ("s1", split_cjk("我喜欢喝茶"))):
        db.execute("INSERT INTO t VALUES (?, ?, 'user', '', '2026-05-08 Friday 8 May 2026')", (scope, body))
    yield db
    db.close()


@given(words)
def test_a_users_words_are_never_query_syntax_and_never_leave_the_scope(index, query):
    expression = match("s1", query)
    if expression is not None:
        assert "Bob likes green tea" not in [r[0] for r in index.execute("SELECT body FROM t WHERE t MATCH ?", (expression,))]


@pytest.mark.parametrize(("query", "found"), [("喝茶", 1), ("喜欢", 1), ("drinking", 0), ("teas", 1), ("what does Ada like?", 1), ("friday", 2), ("s2", 0), ("?!", None)])
def test_what_is_found(index, query, found):
    expression = match("s1", query)
    assert (expression and len(index.execute("SELECT * FROM t WHERE t MATCH ?", (expression,)).fetchall())) == found


def test_stop_words_count_when_there_is_nothing_else():
    assert terms("what is it") == ["what", "is", "it"]
    assert terms("what is Tea tea") == ["tea"]


@given(st.text(max_size=400), st.integers(5, 60))
def test_passages_hold_every_word_and_fit(text, size):
    made = passages_of(text, size)
    assert all(0 < len(p) <= size for p in made)
    assert "".join("".join(made).split()) == "".join(text.split())


def test_passages_are_cut_at_sentence_ends():
    assert passages_of("One two. Three four. Five six.", 20) == ["One two. Three four.", "Five six."]


@pytest.mark.parametrize(("text", "end", "expected"), [
    ("2026-03-01", False, "2026-03-01T00:00:00.000Z"), ("2026-03-01", True, "2026-03-01T23:59:59.999Z"), ("2026-03-01T12:00:00+02:00", True, "2026-03-01T10:00:00.000Z"),
    ("2026-03-01T12:00", False, "2026-03-01T12:00:00.000Z"),
])
def test_a_date_without_a_time_covers_its_whole_day(text, end, expected):
    assert iso(parse_time(text, end=end)) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "01/02/2026"])
def test_what_is_no_date_is_refused(text):
    with pytest.raises(ValueError):
        parse_time(text)


def test_a_day_is_indexed_as_people_ask_for_it():
    assert spoken_day(parse_time("2023-05-08")) == "2023-05-08 Monday 8 May 2023"
