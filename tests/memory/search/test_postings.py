"""Words weigh the same by the postings in memory and by the index's answers, to the last bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search import postings
from memory.search.postings import (
    BITS,
    NOBODY,
    PostedRow,
    PostedRows,
    ScopePostings,
    Stale,
    StoredTerm,
    stored_terms,
)
from memory.search.query import TERMS_VERSION, query_terms
from memory.search.ranking import Matches, weigh_postings

FORMS = ("tea", "boat", "go", "went", "user", "17")
documents = st.lists(
    st.dictionaries(st.sampled_from(FORMS), st.integers(1, 15), max_size=6), max_size=12
)
asked = st.lists(
    st.tuples(
        st.lists(st.sampled_from(FORMS), min_size=1, max_size=3, unique=True),
        st.sampled_from([5, 7, 13, 15]),
    ),
    max_size=4,
)


def rows(count, place=1, **more):
    return PostedRows([PostedRow(10 + n, place, 0.0, True, True) for n in range(count)], **more)


def listing(found):
    """What the index lists of documents, by form."""
    lines = []
    for form in FORMS:
        places = [
            f"{10 + n}{name[0]}"
            for n, words in enumerate(found)
            for name, bit in BITS.items()
            if words.get(form, 0) & bit
        ]
        lines += [f"{form} {','.join(places)}"] if places else []
    return "\n".join(lines)


def looked_up(found, terms):
    """What the index answers: the rows of each term and column, newest first."""
    for i, (forms, columns) in enumerate(terms):
        for name, bit in BITS.items():
            if columns & bit:
                there = [
                    n for n, words in enumerate(found) if any(words.get(f, 0) & bit for f in forms)
                ]
                yield i, name, there[::-1]


@given(documents, asked, st.integers(0, 12))
def test_postings_weigh_as_the_answers_of_the_index_do(found, terms, later):
    """later: documents that were put after the others were read."""
    read = max(0, len(found) - later)
    made = ScopePostings.load(rows(read), listing(found[:read]))
    for n in range(read, len(found)):
        made.add_row(PostedRow(10 + n, 1, 0.0, True, True))
    half = [n for n in made.pending if n % 2]
    made.add_documents({10 + n: found[n] for n in half})
    for n in [*made.pending]:
        made.add_documents({10 + n: found[n]})
    out = made.weigh([StoredTerm(tuple(forms), columns) for forms, columns in terms])
    wanted = weigh_postings(looked_up(found, terms), len(found))
    assert (out.weight, out.asked, out.named) == (wanted.weight, wanted.asked, wanted.named)
    assert made.said_by("user") == {n for n, words in enumerate(found) if words.get("user", 0) & 2}
    assert made.size >= 0
    assert made.version == TERMS_VERSION


def test_what_no_word_is_listed_of_waits_for_its_document():
    made = ScopePostings.load(rows(3, place=7), "tea 11b")
    assert made.pending == {0: 7, 2: 7}
    made.add_documents({10: {"tea": 1}})
    assert made.pending == {2: 7}
    with pytest.raises(Stale):
        made.add_documents({10: {"tea": 1}})
    with pytest.raises(Stale):
        made.add_documents({99: {"tea": 1}})


def test_what_is_no_addition_makes_all_be_read_again(monkeypatch):
    with pytest.raises(Stale):
        rows(2).add(PostedRow(11, 1, 0.0, True, True))
    with pytest.raises(Stale):
        ScopePostings.load(rows(1), "tea 99b")
    monkeypatch.setattr(postings, "MOST_MERGED", 1)
    made = ScopePostings.load(rows(2), "tea 10b")
    with pytest.raises(Stale):
        made.add_documents({11: {"tea": 1, "boat": 1}})
    assert made.pending == {1: 1}
    monkeypatch.setattr(postings, "MOST_ROWS", 2)
    with pytest.raises(Stale):
        made.add_row(PostedRow(12, 1, 0.0, True, True))


def test_words_that_cannot_be_told_apart_are_not_kept(monkeypatch):
    monkeypatch.setattr(postings, "hash", lambda word: 1, raising=False)
    with pytest.raises(Stale):
        ScopePostings.load(rows(1), "tea 10b\nboat 10b")


def test_neighbours_are_those_of_a_conversation_that_may_be_shown():
    said = [(1, True), (2, True), (1, False), (1, True), (2, True)]
    found = PostedRows(
        [PostedRow(n, place, 0.0, is_said, is_said) for n, (place, is_said) in enumerate(said)],
        hidden_numbers=[2],
    )
    assert (list(found.before), found.after[0]) == ([NOBODY, NOBODY, NOBODY, 0, 1], 3)
    beside = found.neighbours([0, 1, 3])
    assert [hit and hit.key for hit in beside[0]] == [None, 3]
    assert [hit and hit.key for hit in beside[3]] == [0, None]
    assert beside[1] == (None, None)
    assert list(found.get([0, 1, 2])) == [0]
    assert found.number(3) == 3
    assert found.number(9) is None


@given(st.dictionaries(st.integers(0, 30), st.sampled_from([0.5, 1.0, 2.0])), st.integers(1, 6))
def test_the_leading_rows_are_the_best_that_may_be_shown(weight, wanted):
    found = PostedRows(PostedRow(n, 1, 0.0, True, n % 3 > 0) for n in range(31))
    best = [n for n in Matches(weight).best() if n % 3]
    assert [hit.key for hit in found.leading(Matches(weight), wanted)] == best[:wanted]
    named = Matches(named={1, 2, 3, 5})
    assert [hit.key for hit in found.leading(named, 2)] == [5, 2]


def test_the_terms_of_a_query_are_stored_forms():
    query = query_terms("What did I say about Boats in March?", thorough=False)
    forms = {w: w.removesuffix("s") for term in query.terms for w in term.words} | {"user": "user"}
    terms, voice = stored_terms(query, forms)
    assert voice == "user"
    by_form = {term.forms[0]: term.columns for term in terms}
    assert by_form["boat"] == BITS["body"] | BITS["speaker"] | BITS["prev"]
    assert by_form["march"] == sum(BITS.values())
    plain = query_terms("the tea", thorough=False)
    assert stored_terms(plain, {"tea": "tea"}).voice is None
