"""Words are stored in the form in which SQLite's index stores them: the same are found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from memory.search.query import WORD, index_text, scope_mark
from memory.stores.sql.index.stems import Stemmer, is_own_stem

STEMS = Stemmer()
words = st.text(min_size=1, max_size=12).map(lambda s: "".join(WORD.findall(s))).filter(bool)


def found_by_sqlite(scope_id, stored, asked):
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE f USING fts5(x, tokenize='porter unicode61')")
        db.execute("INSERT INTO f VALUES (?)", (index_text(scope_id, stored),))
        query = f'"{scope_mark(scope_id)}{asked}"'
        return db.execute("SELECT 1 FROM f WHERE f MATCH ?", (query,)).fetchone() is not None


def found_by_stems(scope_id, stored, asked):
    mark = len(scope_mark(scope_id))
    kept = [word[mark:] for word in index_text(scope_id, stored).split()]
    beginnings = {t[:i] for t in STEMS.tokens(kept, mark) for i in range(1, len(t) + 1)}
    return STEMS.tokens([asked], mark)[0] in beginnings


@given(stored=words, asked=words, scope_id=st.integers(1, 2**63 - 1))
@example(stored="running", asked="run", scope_id=7)
@example(stored="Cafés", asked="cafe", scope_id=7)
@example(stored="yes", asked="ye", scope_id=7)
@example(stored="東京都", asked="京都", scope_id=7)
@example(stored="a" * 60 + "ing", asked="a" * 60, scope_id=2**62)
@example(stored="ab\U0001e900cd", asked="ab", scope_id=7)
@example(stored="½x", asked="½x", scope_id=7)
def test_a_word_is_found_where_sqlite_finds_it(stored, asked, scope_id):
    for one in (asked, stored):
        expected = found_by_sqlite(scope_id, stored, one)
        assert found_by_stems(scope_id, stored, one) == expected


@given(st.lists(st.from_regex(r"[a-z0-9]{0,11}[a-z0-9]", fullmatch=True), max_size=60))
def test_a_word_that_is_its_own_stem_is_stored_as_it_is(some):
    """SQLite itself is asked, with what stands before a word in the index."""
    sure = [word for word in some if is_own_stem(word)]
    assert STEMS._ask([f"sbbx{word}" for word in sure]) == [(f"sbbx{word}",) for word in sure]


def test_words_of_three_letters_that_are_their_own_stems_are_stored_as_they_are():
    letters = "abcdefghijklmnopqrstuvwxyz0"
    sure = ["".join(w) for n in (1, 2, 3) for w in product(letters, repeat=n)]
    sure = [word for word in sure if is_own_stem(word)]
    assert len(sure) > 9000
    assert STEMS._ask([f"sbbx{word}" for word in sure]) == [(f"sbbx{word}",) for word in sure]


def test_what_was_asked_once_is_remembered_and_many_are_asked_together():
    stems, many = Stemmer(), [f"word{i}s" for i in range(1200)]
    assert stems.tokens(many, 5) == stems.tokens(many, 5)
    assert stems.tokens(many, 5)[7] == ("word7",)
