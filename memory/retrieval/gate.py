"""The gate of automatic recall: which hits are worth their tokens. Pure.

Measured on LoCoMo (`make bench BENCH=junk`). Whatever recall finds, and however, passes here alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from memory.search.ranking import DIGITS

# Hits, of which one has to cover enough.
BEST = 5
# The least share of the query's weight that the best hit covers, and the least score of a hit
# relative to the best. Similarity counts instead where an embedder finds what has no word in
# common.
MIN_COVERAGE = 0.25
MIN_SHARE = 0.5
MIN_SIMILARITY = 0.5


class ScoredHit(NamedTuple):
    """What the gate looks at, rounded.

    is_sharing: it says a word of the message that is none of the commonest in its language.
    similarity: 0 without an embedder.
    """

    score: float
    coverage: float
    is_sharing: bool = False
    similarity: float = 0.0


def find_passing(hits: Sequence[ScoredHit]) -> list[int]:
    """Return the indexes of what is worth its tokens; none if the best covers too little."""
    is_covered = max((h.coverage for h in hits[:BEST]), default=0.0) >= MIN_COVERAGE
    best_score = hits[0].score if hits else 0.0
    return [
        i
        for i, h in enumerate(hits)
        if (is_covered and h.score >= MIN_SHARE * best_score)
        or h.is_sharing
        or h.similarity >= MIN_SIMILARITY
    ]


def pass_gate(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hits of a search that are worth their tokens."""
    scored = [
        ScoredHit(
            h["score"],
            h.get("coverage", 0.0),
            h.get("sharing", False),
            h["why"].get("similarity", 0.0),
        )
        for h in hits
    ]
    return [hits[i] for i in find_passing(scored)]


def may_pass(coverage: float, *, is_sharing: bool = False) -> bool:
    """Tell whether anything may pass by its words.

    coverage: that of no row is higher. is_sharing: a row says a topical word of it.
    """
    return is_sharing or round(coverage, DIGITS) >= MIN_COVERAGE
