"""From postings to an order, with the reasons: keyword weight, then what stands around a hit. Pure.

Measured on LoCoMo (`python -m tests.bench.retrieval --without`): each of these mechanisms gains, chosen on four conversations they
hold on the fifth, and the figures around the ones chosen differ by about a percent. Length does not count: messages are short, and a long one that
answers is as good. What occurs twice in a message counts once.

Meaning is a guest of words: it is believed about a query where the embedder agrees with what the words found there, counts for as much of the
query as the words left uncovered, and leaves to them which conversations and neighbours matter. An embedder that knows nothing then costs nothing,
and one that only echoes words hardly moves a hit.
"""
from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.dates import When, dates_in

COLUMNS = {"body": 1.0, "prev": 0.4, "day": 0.5}
SATURATION = 0.6
POOL = 200  # candidates whose surroundings are looked at
SPEAKER, VOICE, DATE, TIMELY = 0.4, 0.2, 0.1, 0.05
SESSION, SESSION_HITS = 0.4, 3  # hits cluster in the conversations that are about the matter
NEAR_HITS, FOLLOWS, PRECEDES = 30, 0.2, 0.1  # a question and its answer belong together
MEANING = 0.85  # what the row nearest by meaning counts at most, where the best by words counts 1
JUDGES, CHANCE = 10, 3.0  # the hits of the words that judge the embedder, and how many standard deviations above chance it must place them
EQUAL = 1e-6  # similarities that differ by less tell nothing apart
_WHEN = re.compile(r"\s*(?:when\b|什么时候|什麼時候|何时|何時|いつ|언제)", re.IGNORECASE)
TIME_WORDS = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|morning|night|since|recently|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|may|june|july|august|september|october|november|december|\d{4})\b|[昨今明]天|上周|下周|上个月|下个月|[月号日]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate that passed the filters. place: its conversation, 0 for what has none. at: seconds since 1970."""

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
    """What the index said: keyword weight by row key, and the rows of a speaker that the query names or implies. asked: what a row would weigh
    that holds each word of the query."""

    weight: dict[int, float] = field(default_factory=dict)
    asked: float = 0.0
    named: set[int] = field(default_factory=set)
    voiced: set[int] = field(default_factory=set)

    def best(self) -> list[int]:
        """Row keys, the likeliest first; of equals the newest."""
        # A speaker's name alone finds what they said.
        weight = self.weight or dict.fromkeys(self.named, 1.0)
        return sorted(weight, key=lambda k: (-weight[k], -k))


def weighed(postings: Iterable[tuple[int, str, Sequence[int]]], size: int) -> Matches:
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
            out.weight[key] = out.weight.get(key, 0.0) + rarity * x * (1 + SATURATION) / (x + SATURATION)
    return out


class Near(dict[int, float]):
    """Similarity by row key, of the rows nearest by meaning. among: of how many rows they are the nearest."""

    def __init__(self, similar: Mapping[int, float] | None = None, among: int = 0) -> None:
        super().__init__(similar or {})
        self.among = among

    def agrees(self, hits: Sequence[int]) -> bool:
        """Whether more of the hits are among the nearest than an embedder would place there that knows nothing: the nearest half at most, by
        the mean and the deviation of draws without putting back."""
        nearest = set(sorted(self, key=self.__getitem__, reverse=True)[: self.among // 2])
        if not nearest or not hits or max(self.values()) - min(self.values()) < EQUAL:
            return False
        n, chance = len(hits), len(nearest) / self.among
        deviation = math.sqrt(chance * (1 - chance) / n * max(self.among - n, 0) / (self.among - 1))
        return len(nearest.intersection(hits)) / n > chance + CHANCE * deviation


@dataclass(slots=True)
class Ranked:
    """A hit's score and the parts it is the sum of."""

    score: float
    why: dict[str, float]


class Ranking:
    """One query's order. pool: the candidates, those by keyword first, the likeliest before the others. near: empty without an embedder."""

    def __init__(self, query: str, matches: Matches, pool: Sequence[Found], near: Near) -> None:
        self._query, self._matches = query, matches
        # A speaker's name alone finds what they said.
        self._weight = matches.weight or dict.fromkeys(matches.named, 1.0)
        self._found = {f.key: f for f in pool}
        self._similar = {k: near[k] for k in self._found if k in near}
        hits = [k for k in self._found if k in self._weight]
        self._parts = self._said(near.agrees(hits[:JUDGES]) if hits else True)
        self._base = {key: told.get("keyword" if hits else "meaning", 0.0) for key, told in self._parts.items() if key in self._weight or not hits}

    def leading(self) -> list[int]:
        """The rows whose neighbours count."""
        return sorted(self._base, key=lambda k: (-self._base[k], -k))[:NEAR_HITS]

    def order(self, beside: Mapping[int, tuple[Found | None, Found | None]]) -> dict[int, Ranked]:
        """The pool and its neighbours, best first; last what was found by a meaning that is not believed. beside: what comes before and after a
        leading row, where it may be shown."""
        for key in self.leading():
            for other, share in zip(beside.get(key, (None, None)), (PRECEDES, FOLLOWS), strict=True):
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
        last = sorted(self._similar.keys() - scores.keys(), key=lambda k: (-self._similar[k], -k))
        return {k: Ranked(scores[k], {name: round(x, 4) for name, x in self._parts[k].items()}) for k in best} | {k: Ranked(0.0, {}) for k in last}

    def _said(self, believed: bool) -> dict[int, dict[str, float]]:
        """The parts that come from the words and the meaning: the greater of both, so that what the words found well keeps its order.
        believed: else nothing comes from the meaning, and what it alone found has no part."""
        weight = self._weight
        high = max((weight.get(k, 0.0) for k in self._found), default=0.0)
        best = max((self._matches.weight.get(k, 0.0) for k in self._found), default=0.0)
        share = MEANING * (1 - best / max(best, self._matches.asked)) if best else 1.0
        similar = spread(self._similar) if believed else {}
        out: dict[int, dict[str, float]] = {}
        for key in self._found:
            if key not in weight and key not in similar:
                continue
            told = out.setdefault(key, {})
            if key in weight:
                told["keyword"] = weight[key] / high
            if (more := share * similar.get(key, 0.0) - told.get("keyword", 0.0)) > 0:
                told["meaning"] = more
        return out

    def _sessions(self) -> dict[tuple[int, int], float]:
        """Group to its part: the sum of its best hits, the best group's the whole."""
        by: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        for key, score in self._base.items():
            by[self._found[key].group].append(score)
        sums = {group: sum(sorted(scores, reverse=True)[:SESSION_HITS]) for group, scores in by.items()}
        high = max(sums.values(), default=0.0) or 1.0
        return {group: SESSION * x / high for group, x in sums.items()}


def spread(scores: Mapping[int, float]) -> dict[int, float]:
    """Scores from 0 to 1. All equal says "found": as good as the best, rather than nothing."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    return {k: (s - low) / (high - low) if high > low else 1.0 for k, s in scores.items()}


def _priors(found: Found, matches: Matches, dates: Sequence[When]) -> dict[str, float]:
    out: dict[str, float] = {}
    if found.key in matches.named:
        out["speaker"] = SPEAKER
    elif found.key in matches.voiced:
        out["speaker"] = VOICE
    if any(d.holds(found.at) for d in dates):
        out["date"] = DATE
    return out
