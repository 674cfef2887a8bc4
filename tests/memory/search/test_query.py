"""What text becomes before it is indexed, and what a query becomes before it is looked up."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.query import (
    QUICK_TERMS,
    excerpt,
    has_words,
    index_text,
    iso,
    parse_time,
    passages_of,
    scope_mark,
    spoken_day,
    term_lookups,
    terms,
    without_names,
    word_lookup,
)

words = st.text(max_size=60) | st.sampled_from(
    [
        '"',
        "a OR b",
        "NEAR(x y)",
        "scope : s2",
        "a*",
        "-a",
        "(",
        "喝茶 tea",
        "what is it",
        "s2xtea",
        "_s2xtea",
        "s2x tea",
    ]
)


@pytest.fixture(scope="module")
def index():
    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE t USING fts5(scope, body, speaker, prev, day, tokenize='porter "
        "unicode61')"
    )
    for scope, body, speaker in (
        (1, "Ada likes green tea", "Ada user"),
        (2, "Bob likes green tea", "user"),
        (1, "我喜欢喝茶", "assistant"),
        (1, "We went to Rome", "user"),
        (12, "green", "user"),
    ):
        db.execute(
            "INSERT INTO t VALUES (?, ?, ?, '', ?)",
            (
                f"s{scope}",
                index_text(scope, body),
                index_text(scope, speaker),
                index_text(scope, "2026-05-08 Friday 8 May 2026"),
            ),
        )
    yield db
    db.close()


def hits(index, scope, query):
    found = [
        r
        for x in term_lookups(scope, query)
        for r in index.execute("SELECT rowid, scope FROM t WHERE t MATCH ?", (x.expression,))
    ]
    assert {r[1] for r in found} <= {f"s{scope}"}
    return {r[0] for r in found}


@given(words)
def test_a_users_words_are_never_query_syntax_and_never_leave_the_scope(index, query):
    hits(index, 1, query)


@given(st.text(max_size=30))
def test_no_text_is_indexed_as_another_scopes_words(text):
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize='porter unicode61')")
    for hostile in (text, f"{text}_s2xtea", f"s2xtea{text}", f"\u0301s2xtea {text}"):
        db.execute("INSERT INTO t VALUES (?)", (index_text(1, hostile),))
    assert db.execute("SELECT count(*) FROM t WHERE t MATCH '\"s2xtea\"'").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("喝茶", {3}),
        ("喜欢", {3}),
        ("drinking", set()),
        ("teas", {1}),
        ("what does Ada like?", {1}),
        ("friday", {1, 3, 4}),
        ("s2", set()),
        ("?!", set()),
        ("go", {4}),
        ("going", set()),
        ("Ada", {1}),
    ],
)
def test_what_is_found(index, query, found):
    assert hits(index, 1, query) == found


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("what did you tell me", None),
        ("where do I live", "user"),
        ("which film did you like", "assistant"),
        ("tea", None),
    ],
)
def test_i_and_you_name_a_speaker(query, said):
    voices = [x.expression for x in term_lookups(1, query) if x.column == "voice"]
    assert voices == ([f'speaker : "s1x{said}"'] if said else [])


def test_stop_words_count_when_there_is_nothing_else():
    assert terms("what is it") == ("what", "is", "it")
    assert terms("what is Tea tea") == ("tea",)
    assert terms("what's Ada's") == ("ada",)


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("What did Ada research?", "What did research?"),
        ("What is Ada's dog called?", "What is dog called?"),
        ("Ada’s dog", "dog"),
        ("Who is Ada?", "Who is Ada?"),
        ("Ada", "Ada"),
        ("Adam's garden", "Adam's garden"),
        ("a garden", "a garden"),
        ("", ""),
    ],
)
def test_a_query_without_names(query, rest):
    assert without_names(query, {"ada"}) == rest
    assert without_names(query, ()) == query


@given(st.text(max_size=400), st.integers(5, 60))
def test_passages_hold_every_word_and_fit(text, size):
    made = passages_of(text, size)
    assert all(0 < len(p) <= size for p in made)
    assert "".join("".join(made).split()) == "".join(text.split())


@given(st.text(max_size=300), st.integers(4, 120))
def test_an_excerpt_is_the_beginning_and_the_end(text, size):
    found = excerpt(text, size)
    assert len(found) <= size + 1
    if len(text) <= size:
        assert found == text
    else:
        assert found.startswith(text[: size - size // 4])
        assert found.endswith(text[len(text) - size // 4 :])


def test_passages_are_cut_at_sentence_ends():
    assert passages_of("One two. Three four. Five six.", 20) == [
        "One two. Three four.",
        "Five six.",
    ]


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        ("2026-03-01", False, "2026-03-01T00:00:00.000Z"),
        ("2026-03-01", True, "2026-03-01T23:59:59.999Z"),
        ("2026-03-01T12:00:00+02:00", True, "2026-03-01T10:00:00.000Z"),
        ("2026-03-01T12:00", False, "2026-03-01T12:00:00.000Z"),
        ("20260301", False, "2026-03-01T00:00:00.000Z"),
        ("20260301", True, "2026-03-01T23:59:59.999Z"),
        ("2026-W09-7", True, "2026-03-01T23:59:59.999Z"),
        ("20260301T1200", True, "2026-03-01T12:00:00.000Z"),
    ],
)
def test_a_date_without_a_time_covers_its_whole_day(text, end, expected):
    assert iso(parse_time(text, end=end)) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "01/02/2026"])
def test_what_is_no_date_is_refused(text):
    with pytest.raises(ValueError):
        parse_time(text)


def test_a_day_is_indexed_as_people_ask_for_it():
    assert spoken_day(parse_time("2023-05-08")) == "2023-05-08 Monday 8 May 2023"


def test_a_quick_query_asks_for_its_rarest_words_and_for_names_that_are_written_as_such():
    short = [f"w{i:02}" for i in range(QUICK_TERMS)]
    query = " ".join(["Grandmother", *short, "spoke", "about", "lighthouses"])
    assert len(terms(query)) == QUICK_TERMS + 3
    quick = terms(query, thorough=False)
    assert len(quick) == QUICK_TERMS
    assert quick[0] == "grandmother"
    assert quick[-2:] == ("spoke", "lighthouses")
    assert terms("tea with Ada", thorough=False) == terms("tea with Ada")
    speakers = [x.words for x in term_lookups(2, "tea with Ada", thorough=False)]
    assert [x.column for x in term_lookups(2, "tea", thorough=False)] == ["body", "prev"]
    assert speakers.count(("ada",)) == 3


def test_whether_there_is_anything_to_search_for():
    assert has_words("tea?")
    assert not has_words(" ?!_ ")


def test_a_form_of_a_word_is_looked_up_once():
    lookups = list(term_lookups(1, "go went"))
    assert {t.term for t in lookups} == {0}


def test_one_word_is_looked_up_in_what_was_said():
    found = word_lookup(1, "tea")
    assert (found.column, found.words) == ("body", ("tea",))
    assert found.expression == f'body : "{scope_mark(1)}tea"'
