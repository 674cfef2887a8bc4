"""From postings to an order, with the reasons: keyword weight, then what stands around a hit. Pure.

Measured on LoCoMo (`python -m tests.bench.retrieval --without`): each of these mechanisms gains,
chosen on four conversations they hold on the fifth, and the figures around the ones chosen differ
by about a percent. Length does not count: messages are short, and a long one that answers is as
good. What occurs twice in a message counts once.

Meaning is a guest of words: it counts for as much of the query as they left uncovered, fades from a
row as they found it, so that what they found half as well as the best keeps its order, and leaves
to them which conversations and neighbours matter. Measured with all-MiniLM-L6-v2, which finds more
in four of five conversations and no less in the fifth; with embedders that only echo words, which
lose nothing; and with ones that know nothing, which are found out: neither what was said in a row
nor what shares words is alike to them (see memory.vectors). Beside words, those count for nothing.
Equal weights of both gain as much with MiniLM, and lose four points and more with one that echoes
words.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.search.dates import DateRange, dates_in

COLUMNS = {"body": 1.0, "prev": 0.4, "day": 0.5}
SATURATION = 0.6
POOL = 200  # candidates whose surroundings are looked at
SPEAKER, VOICE, DATE, TIMELY = 0.4, 0.2, 0.1, 0.05
SESSION, SESSION_HITS = 0.4, 3  # hits cluster in the conversations that are about the matter
NEAR_HITS, FOLLOWS, PRECEDES = 30, 0.2, 0.1  # a question and its answer belong together
NEAREST = 50  # rows that are near, beside those the words found
MEANING = 0.8  # what the row nearest by meaning counts at most, where the best by words counts 1
# of the best by words: what a row that was found so well gets nothing more from its meaning
FADED = 0.5
EQUAL = 1e-6  # similarities that differ by less tell nothing apart
_WHEN = re.compile(r"\s*(?:when\b|什么时候|什麼時候|何时|何時|いつ|언제)", re.IGNORECASE)
TIME_WORDS = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|morning|night|since|recently|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|may|june|july|august|september|october|november|december|\d{4})\b|[昨今明]天|上周|下周|上个月|下个月|[月号日]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SearchHits:
    """A candidate that passed the filters.

    place: its conversation, 0 for what has none. at: seconds since 1970.
    """

    key: int
    place: int
    at: float
    text: str

    @property
    def group(self) -> tuple[int, int]:
        """Its session: the conversation on that day."""
        return self.place, int(self.at // 86400)


@dataclass(slots=True)
class Matches:
    """What the index said: keyword weight by row key, and the rows of a speaker that the query
    names or implies. asked: what a row would weigh that holds each word of the query.
    """

    weight: dict[int, float] = field(default_factory=dict)
    asked: float = 0.0
    named: set[int] = field(default_factory=set)
    voiced: set[int] = field(default_factory=set)

    def best(self) -> list[int]:
        """Row keys, the likeliest first; of equals the newest."""
        # A speaker's name alone finds what they said.
        weight = self.weight or dict.fromkeys(self.named, 1.0)
        return sorted(weight, key=lambda k: (-weight[k], -k))


def weigh_postings(postings: Iterable[tuple[int, str, Sequence[int]]], size: int) -> Matches:
    """postings: (term, column, row keys). size: documents of the scope."""
    by_term: dict[int, dict[int, float]] = {}
    everywhere: dict[int, set[int]] = {}
    out = Matches()
    for term, column, keys in postings:
        if column == "voice":
            out.voiced.update(keys)
            continue
        everywhere.setdefault(term, set()).update(keys)
        if column == "speaker":
            out.named.update(keys)
            continue
        told, weight = by_term.setdefault(term, {}), COLUMNS[column]
        for key in keys:
            told[key] = told.get(key, 0.0) + weight
    for term, told in by_term.items():
        df = len(everywhere[term])
        rarity = math.log(1 + (max(size, df) - df + 0.5) / (df + 0.5))
        out.asked += rarity
        for key, x in told.items():
            out.weight[key] = out.weight.get(key, 0.0) + rarity * x * (1 + SATURATION) / (
                x + SATURATION
            )
    return out


class SimilarityScores(dict[int, float]):
    """Similarity by row key.

    floor: that of a row which says nothing of the query; the least there is where it is not known.
    knows: whether the embedder is proven to know something, by rows that share words; without it,
    it is believed.
    """

    def __init__(
        self,
        similar: Mapping[int, float] | None = None,
        floor: float | None = None,
        knows: Callable[[Sequence[int]], bool] | None = None,
    ) -> None:
        super().__init__(similar or {})
        self.floor = min(self.values(), default=0.0) if floor is None else floor
        self._knows = knows

    def nearest(self) -> list[int]:
        """Return the row keys that are nearest, the nearest first."""
        return [k for _, k in heapq.nlargest(NEAREST, zip(self.values(), self, strict=True))]

    def knows(self, hits: Sequence[int]) -> bool:
        return self._knows is None or self._knows(hits)


@dataclass(slots=True)
class Ranked:
    """A hit's score and the parts it is the sum of."""

    score: float
    why: dict[str, float]


class Ranking:
    """One query's order.

    pool: the candidates by keyword, the likeliest first. near: empty without an embedder. others:
    what is near beside them.
    """

    def __init__(
        self,
        query: str,
        matches: Matches,
        pool: Sequence[SearchHits],
        near: SimilarityScores,
        others: Sequence[SearchHits] = (),
    ) -> None:
        self._query, self._matches = query, matches
        # A speaker's name alone finds what they said.
        self._weight = matches.weight or dict.fromkeys(matches.named, 1.0)
        self._found = {f.key: f for f in (*pool, *others)}
        self._near = near
        if not pool:
            self._parts = self._score_parts(
                self._found, self._similar() or dict.fromkeys(near, 1.0)
            )  # all equal says "found": as good as the nearest
        elif near.knows([f.key for f in pool if f.key in near]):
            self._parts = self._score_parts(self._found, self._similar())
        else:
            self._parts = self._score_parts([f.key for f in pool], {})
        self._base = {
            key: told.get("keyword" if pool else "meaning", 0.0)
            for key, told in self._parts.items()
            if key in self._weight or not pool
        }

    def leading_rows(self) -> list[int]:
        """Return the rows whose neighbours count."""
        return sorted(self._base, key=lambda k: (-self._base[k], -k))[:NEAR_HITS]

    def order(
        self, beside: Mapping[int, tuple[SearchHits | None, SearchHits | None]]
    ) -> dict[int, Ranked]:
        """Return the pool and its neighbours, best first; last what is near to an embedder that is
        not believed. beside: what comes before and after a leading row, where it may be shown.
        """
        for key in self.leading_rows():
            for other, share in zip(
                beside.get(key, (None, None)), (PRECEDES, FOLLOWS), strict=True
            ):
                if other is not None:
                    self._found.setdefault(other.key, other)
                    told = self._parts.setdefault(other.key, {})
                    told["neighbour"] = told.get("neighbour", 0.0) + share * self._base[key]
        sessions = self._sessions()
        dates, timely = dates_in(self._query), bool(_WHEN.match(self._query))
        for key, told in self._parts.items():
            found = self._found[key]
            told |= _priors(found, self._matches, dates)
            if part := sessions.get(found.group):
                told["session"] = part
            if timely and TIME_WORDS.search(found.text):
                told["time"] = TIMELY
        scores = {k: sum(told.values()) for k, told in self._parts.items()}
        best = sorted(scores, key=lambda k: (-scores[k], -k))
        last = sorted(
            self._found.keys() - scores.keys(), key=lambda k: (-self._near.get(k, 0.0), -k)
        )
        return {
            k: Ranked(scores[k], {name: round(x, 4) for name, x in self._parts[k].items()})
            for k in best
        } | {k: Ranked(0.0, {}) for k in last}

    def _score_parts(
        self, keys: Iterable[int], similar: Mapping[int, float]
    ) -> dict[int, dict[str, float]]:
        """Return the parts that come from the words and the meaning. similar: from 0 to 1."""
        weight = self._weight
        high = max((weight.get(k, 0.0) for k in self._found), default=0.0)
        best = max((self._matches.weight.get(k, 0.0) for k in self._found), default=0.0)
        share = MEANING * (1 - best / max(best, self._matches.asked)) if best else 1.0
        out: dict[int, dict[str, float]] = {}
        for key in keys:
            told: dict[str, float] = {}
            if key in weight:
                told["keyword"] = weight[key] / high
            if (more := share * similar.get(key, 0.0) * (1 - told.get("keyword", 0.0) / FADED)) > 0:
                told["meaning"] = more
            if told:
                out[key] = told
        return out

    def _similar(self) -> dict[int, float]:
        """Similarity from 0, that of a row which says nothing of the query, to 1, the nearest;
        nothing where all are equal.
        """
        low, high = self._near.floor, max(self._near.values(), default=0.0)
        return (
            {k: (self._near[k] - low) / (high - low) for k in self._found if k in self._near}
            if high - low >= EQUAL
            else {}
        )

    def _sessions(self) -> dict[tuple[int, int], float]:
        """Group to its part: the sum of its best hits, the best group's the whole."""
        by: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        for key, score in self._base.items():
            by[self._found[key].group].append(score)
        sums = {
            group: sum(sorted(scores, reverse=True)[:SESSION_HITS]) for group, scores in by.items()
        }
        high = max(sums.values(), default=0.0) or 1.0
        return {group: SESSION * x / high for group, x in sums.items()}


def _priors(found: SearchHits, matches: Matches, dates: Sequence[DateRange]) -> dict[str, float]:
    out: dict[str, float] = {}
    if found.key in matches.named:
        out["speaker"] = SPEAKER
    elif found.key in matches.voiced:
        out["speaker"] = VOICE
    if any(d.holds(found.at) for d in dates):
        out["date"] = DATE
    return out
