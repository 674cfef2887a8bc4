"""How well a ranking finds the evidence of a question, and means of that over questions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

# Results that count, for all but the reciprocal rank.
CUT = 10
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
# Asks for what was never said; its evidence is what misleads.
ADVERSARIAL = 5


@dataclass(frozen=True, slots=True)
class Score:
    """Of one question.

    recall: the share of its evidence among the first 10. ndcg: the same weighted by rank: a result
    at rank r counts 1 / log2(r + 1), and the sum is divided by the best that is possible.
    reciprocal: 1 / the rank of the first evidence, 0 for none.
    """

    category: int
    recall: float
    ndcg: float
    reciprocal: float


def score(category: int, ranked: Sequence[str], evidence: Collection[str]) -> Score:
    """Score a ranking, best first. evidence: the ids that answer the question, at least one."""
    ranks = [rank for rank, ident in enumerate(ranked, 1) if ident in evidence]
    within = [rank for rank in ranks if rank <= CUT]
    gain = sum(1 / math.log2(rank + 1) for rank in within)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(CUT, len(evidence)) + 1))
    return Score(category, len(within) / len(evidence), gain / best, 1 / ranks[0] if ranks else 0.0)


@dataclass(frozen=True, slots=True)
class Means:
    """Over all questions but the adversarial ones. by_category: recall of each category."""

    asked: int
    recall: float
    ndcg: float
    reciprocal: float
    by_category: dict[str, float]


def means(scores: Sequence[Score]) -> Means:
    """Return the means over questions, each counting the same."""

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    asked = [s for s in scores if s.category != ADVERSARIAL]
    return Means(
        len(asked),
        mean([s.recall for s in asked]),
        mean([s.ndcg for s in asked]),
        mean([s.reciprocal for s in asked]),
        {
            name: mean([s.recall for s in scores if s.category == category])
            for category, name in CATEGORIES.items()
        },
    )
