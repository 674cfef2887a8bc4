"""The gate of automatic recall: one place decides, whoever found the hits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.retrieval.gate import (
    MIN_COVERAGE,
    ScoredHit,
    find_passing,
    may_pass,
    pass_gate,
)
from memory.search.ranking import DIGITS

shares = st.floats(0, 1.5).map(lambda x: round(x, DIGITS))
by_words = st.tuples(st.floats(0, 3), shares).map(lambda pair: ScoredHit(*pair))
scored = st.lists(by_words, max_size=12)


@given(scored)
def test_nothing_passes_where_no_row_covers_enough(found):
    found.sort(reverse=True)
    best = max((h.coverage for h in found), default=0.0)
    assert may_pass(best) or not find_passing(found)


@given(scored)
def test_hits_and_their_figures_pass_alike(found):
    found.sort(reverse=True)
    hits = [{"score": h.score, "coverage": h.coverage, "why": {}} for h in found]
    assert pass_gate(hits) == [hits[i] for i in find_passing(found)]


def test_a_coverage_counts_as_it_is_returned():
    assert may_pass(MIN_COVERAGE - 0.00004)
    assert not may_pass(MIN_COVERAGE - 0.00006)
