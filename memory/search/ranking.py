"""Ranks hits, with the reasons: keyword weight, then the context of a hit. Pure.

Measured on LoCoMo (`python -m tests.bench.retrieval --without`): each mechanism is a gain; chosen
on four conversations they hold on the fifth, and similar constants give results within about a
percent. Length does not count: messages are short, and a long one that answers is as good. A word
that occurs twice in a message counts once.

Vector scores only supplement keyword scores. They are weighted by the share of query terms that no
keyword hit covers, and reduced for rows that already score well by keyword, so that a row with half
of the best keyword score keeps its order; conversations and neighbours are chosen by keyword
scores. Measured with all-MiniLM-L6-v2, which finds more in four of five conversations and no less
in the fifth; with embedders that only echo words, which lose nothing; and with embedders that know
nothing. The latter are detected, since neither adjacent messages nor messages that share words are
similar to them (see `similarity`); their scores are ignored if there are keyword hits. Equal
weights of both gain as much with MiniLM, but lose four points and more with an embedder that echoes
words.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from memory.search.dates import dates_in

COLUMNS = {"body": 1.0, "prev": 0.4, "day": 0.5}
SATURATION = 0.6
# Candidates whose context is considered.
POOL = 200
SPEAKER = 0.7
VOICE = 0.2
DATE = 0.1
TIMELY = 0.05
# Hits cluster in the relevant conversations.
SESSION, SESSION_HITS = 0.4, 3
# A question and its answer belong together.
NEAR_HITS, FOLLOWS, PRECEDES = 30, 0.2, 0.1
# Most rows by similarity, beside the keyword hits.
NEAREST = 50
# Score of the most similar row, relative to the best keyword score.
MEANING = 0.8
# share of the best keyword score, from which similarity adds nothing
FADED = 0.5
# Weight of a query of some four rare words, beyond which no row need cover it.
ASKED = 20.0
# Of a score and a coverage, as a search returns them.
DIGITS = 4
# Similarities that differ by less are equal.
EQUAL = 1e-6
_WHEN = re.compile(r"\s*(?:when\b|什么时候|什麼時候|何时|何時|いつ|언제)", re.IGNORECASE)
# Seconds.
DAY = 86400
TIME_WORDS = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|last|next|ago|weeks?|weekend|months?|years?|morning|night|since|recently|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|may|june|july|august|september|october|november|december|\d{4})\b|[昨今明]天|上周|下周|上个月|下个月|[月号日]",
    re.IGNORECASE,
)


class SearchHits(msgspec.Struct, frozen=True, gc=False):
    """A candidate that passed the filters.

    place: its conversation, 0 for none. at: Unix time.
    """

    key: int
    place: int
    at: float
    text: str


@dataclass(slots=True)
class Matches:
    """The result of the index lookups.

    weight: keyword weight by row key. asked: weight of a row with every word of the query. named,
    voiced: rows of a speaker that the query names or implies. size: documents of the scope. narrow:
    the weight of the query's own words, where others were added. sharing: rows that say a topical
    word of the query.
    """

    weight: dict[int, float] = field(default_factory=dict)
    asked: float = 0.0
    named: set[int] = field(default_factory=set)
    voiced: set[int] = field(default_factory=set)
    size: int = 0
    narrow: dict[int, float] | None = None
    sharing: set[int] = field(default_factory=set)

    @property
    def own(self) -> dict[int, float]:
        """The weight of the query's own words alone."""
        if self.narrow is None:
            return self.weight
        return self.narrow

    def best_coverage(self) -> float:
        """Return the coverage that no row exceeds, see `Ranked`."""
        if word_count := min(self.asked, ASKED):
            return max(self.own.values(), default=0.0) / word_count
        return float(bool(self.named))

    def with_weight(self, weight: dict[int, float]) -> Matches:
        """Return the matches with what other words added to the query's own."""
        return replace(self, weight=weight, narrow=self.weight)

    def best(self) -> list[int]:
        """Return row keys, the best first; of equals the newest."""
        # A query with only a speaker's name finds all their messages.
        weight = self.weight or dict.fromkeys(self.named, 1.0)
        # The second sorting keeps the order of equals.
        return sorted(sorted(weight, reverse=True), key=weight.__getitem__, reverse=True)


def weigh_postings(
    postings: Iterable[tuple[int, str, Sequence[int]]],
    size: int,
    topics: Collection[int] = (),
) -> Matches:
    """Compute keyword weights.

    postings: (term, column, row keys). size: documents of the scope. topics: topical terms.
    """
    columns_by_term: dict[int, dict[str, Sequence[int]]] = {}
    matches = Matches(size=size)
    for term, column, keys in postings:
        if column == "voice":
            matches.voiced.update(keys)
            continue
        columns_by_term.setdefault(term, {})[column] = keys
        if column == "speaker":
            matches.named.update(keys)
        if column == "body" and term in topics:
            matches.sharing.update(keys)
    for keys_by_column in columns_by_term.values():
        _add_term(matches, keys_by_column)
    return matches


def _add_term(matches: Matches, keys_by_column: Mapping[str, Sequence[int]]) -> None:
    """Add what the rows of one term weigh. keys_by_column: at least one list is a column's own."""
    weighing_columns = {
        column: keys for column, keys in keys_by_column.items() if column != "speaker"
    }
    if not weighing_columns:
        return
    key_lists = [keys for keys in keys_by_column.values() if keys]
    if len(key_lists) == 1:
        df = len(key_lists[0])
    else:
        df = len(set().union(*key_lists))
    rarity = math.log(1 + (max(matches.size, df) - df + 0.5) / (df + 0.5))
    matches.asked += rarity
    weight = matches.weight
    for x, keys in _group_by_weight(weighing_columns):
        row_weight = rarity * x * (1 + SATURATION) / (x + SATURATION)
        if weight:
            for key in keys:
                weight[key] = weight.get(key, 0.0) + row_weight
        else:
            weight.update(dict.fromkeys(keys, row_weight))


def _group_by_weight(
    keys_by_column: Mapping[str, Sequence[int]],
) -> Iterable[tuple[float, Sequence[int]]]:
    """Return the rows that have a word, by the weight of the columns that have it."""
    pairs = [(COLUMNS[column], keys) for column, keys in keys_by_column.items() if keys]
    # Mostly: no row has it in two columns.
    if len(pairs) < 2:
        return pairs
    weight_by_key: dict[int, float] = {}
    for weight, keys in pairs:
        for key in keys:
            weight_by_key[key] = weight_by_key.get(key, 0.0) + weight
    keys_by_weight: defaultdict[float, list[int]] = defaultdict(list)
    for key, x in weight_by_key.items():
        keys_by_weight[x].append(key)
    return keys_by_weight.items()


class SimilarityScores(dict[int, float]):
    """Similarity by row key.

    floor: of an unrelated row; the minimum if unknown. knows: whether the embedder is proven
    useful, by rows that share words; without it, it is trusted.
    """

    def __init__(
        self,
        similarities: Mapping[int, float] | None = None,
        floor: float | None = None,
        knows: Callable[[Sequence[int]], bool] | None = None,
    ) -> None:
        super().__init__(similarities or {})
        if floor is None:
            self.floor = min(self.values(), default=0.0)
        else:
            self.floor = floor
        self._knows = knows

    def nearest(self) -> list[int]:
        """Return the keys of the most similar rows, best first."""
        return [k for _, k in heapq.nlargest(NEAREST, zip(self.values(), self, strict=True))]

    def knows(self, hits: Sequence[int]) -> bool:
        return self._knows is None or self._knows(hits)


@dataclass(slots=True)
class Ranked:
    """A hit's score and the parts that it is the sum of.

    coverage: the share of the query's weight that its own words have, about 1 for all of them.
    is_sharing: it says a topical word of the query.
    """

    score: float
    parts: dict[str, float]
    coverage: float = 0.0
    is_sharing: bool = False

    @property
    def why(self) -> dict[str, float]:
        """The parts, rounded for people."""
        return {name: round(x, 4) for name, x in self.parts.items()}


def asks_when(query: str) -> bool:
    """Tell whether a query asks for a time, so that texts which tell one count for more."""
    return bool(_WHEN.match(query))


class CandidateRows(Protocol):
    """The rows that a ranking chooses from, wherever they are."""

    def leading(self, matches: Matches, count: int) -> list[SearchHits]:
        """Return the best rows that may be shown, at most so many."""
        ...

    def get(self, keys: Sequence[int]) -> dict[int, SearchHits]:
        """Return the rows that may be shown, in order."""
        ...

    def neighbours(
        self, keys: Sequence[int]
    ) -> dict[int, tuple[SearchHits | None, SearchHits | None]]:
        """Return the rows before and after each of these, if they may be shown."""
        ...


def rank(
    rows: CandidateRows,
    query: str,
    matches: Matches,
    similarity: SimilarityScores,
    limits: tuple[int, int | None],
) -> tuple[dict[int, Ranked], dict[int, SearchHits]]:
    """Return row keys with scores, best first, and the candidates by words.

    limits: candidates that are looked at closely, and rows returned, None for all.
    """
    pool = rows.leading(matches, limits[0])
    have = {f.key: f for f in pool}
    similar_rows = rows.get([k for k in similarity.nearest() if k not in have])
    ranking = Ranking(query, matches, pool, similarity, [*similar_rows.values()])
    return ranking.order(rows.neighbours(ranking.leading_rows()), limits[1]), have


class Ranking:
    """The ranking of one query.

    pool: the candidates by keyword, best first. near: empty without an embedder. others: further
    candidates by similarity.
    """

    def __init__(
        self,
        query: str,
        matches: Matches,
        pool: Sequence[SearchHits],
        similarity: SimilarityScores,
        other_rows: Sequence[SearchHits] = (),
    ) -> None:
        self._query = query
        self._matches = matches
        # A query with only a speaker's name finds all their messages.
        self._weight = matches.weight or dict.fromkeys(matches.named, 1.0)
        self._hits = {f.key: f for f in (*pool, *other_rows)}
        self._similarity = similarity
        if not pool:
            # All equal: as good as the most similar.
            self._parts = self._score_parts(
                self._hits, self._similar() or dict.fromkeys(similarity, 1.0)
            )
        elif similarity.knows(
            [f.key for f in pool if f.key in similarity and f.key in matches.own]
        ):
            self._parts = self._score_parts(self._hits, self._similar())
        else:
            self._parts = self._score_parts([f.key for f in pool], {})
        self._base = {
            key: score_parts.get("keyword" if pool else "meaning", 0.0)
            for key, score_parts in self._parts.items()
            if key in self._weight or not pool
        }
        self._leading: list[int] | None = None

    def leading_rows(self) -> list[int]:
        """Return the rows whose neighbours count."""
        if self._leading is None:
            ranked_keys = sorted([(score, key) for key, score in self._base.items()], reverse=True)
            self._leading = [key for _, key in ranked_keys[:NEAR_HITS]]
        return self._leading

    def order(
        self,
        beside: Mapping[int, tuple[SearchHits | None, SearchHits | None]],
        limit: int | None = None,
    ) -> dict[int, Ranked]:
        """Return the pool and its neighbours, best first, at most so many.

        Hits of an embedder that is not trusted come last. beside: the rows before and after a
        leading row, if they may be shown.
        """
        for key in self.leading_rows():
            before, after = beside.get(key, (None, None))
            if before is not None:
                self._add_neighbour(before, PRECEDES * self._base[key])
            if after is not None:
                self._add_neighbour(after, FOLLOWS * self._base[key])
        self._add_priors()
        ranked_keys = sorted(
            [(sum(score_parts.values()), k) for k, score_parts in self._parts.items()], reverse=True
        )
        sharing = self._matches.sharing
        ranked_rows = {
            k: Ranked(score, self._parts[k], self._coverage(k), k in sharing)
            for score, k in ranked_keys[:limit]
        }
        if limit is None or len(ranked_rows) < limit:
            unranked_keys = self._hits.keys() - self._parts.keys()
            trailing_keys = sorted(unranked_keys, key=lambda k: (-self._similarity.get(k, 0.0), -k))
            ranked_rows |= {
                k: Ranked(0.0, {})
                for k in trailing_keys[: None if limit is None else limit - len(ranked_rows)]
            }
        return ranked_rows

    def _add_neighbour(self, row: SearchHits, score: float) -> None:
        """Add what a row beside a leading one is worth."""
        score_parts = self._parts.get(row.key)
        if score_parts is None:
            self._parts[row.key] = {"neighbour": score}
            self._hits.setdefault(row.key, row)
        else:
            score_parts["neighbour"] = score_parts.get("neighbour", 0.0) + score

    def _add_priors(self) -> None:
        """Add what hits are worth by their speaker, date, session and words of time.

        A session is a conversation on one day.
        """
        hits = self._hits
        groups = {key: (hits[key].place, hits[key].at // DAY) for key in self._parts}
        sessions = self._sessions(groups)
        dates = dates_in(self._query)
        timely = asks_when(self._query)
        named_rows = self._matches.named
        voiced = self._matches.voiced
        for key, score_parts in self._parts.items():
            if key in named_rows:
                score_parts["speaker"] = SPEAKER
            elif key in voiced:
                score_parts["speaker"] = VOICE
            if dates and any(d.holds(hits[key].at) for d in dates):
                score_parts["date"] = DATE
            if part := sessions.get(groups[key]):
                score_parts["session"] = part
            if timely and TIME_WORDS.search(hits[key].text):
                score_parts["time"] = TIMELY

    def _coverage(self, key: int) -> float:
        """Return how much of the query a row's words cover.

        Of a long query no row has all, so its weight counts up to a bound.
        """
        word_count = min(self._matches.asked, ASKED)
        # A query with only a speaker's name is covered by all their messages.
        if word_count:
            return self._matches.own.get(key, 0.0) / word_count
        return float(key in self._weight)

    def _score_parts(
        self, keys: Collection[int], similarities: Mapping[int, float]
    ) -> dict[int, dict[str, float]]:
        """Return the parts of the score that come from keywords and similarity.

        similarities: from 0 to 1.
        """
        weight = self._weight
        highest_weight = max([weight.get(k, 0.0) for k in self._hits], default=0.0)
        parts_by_key = {k: {"keyword": weight[k] / highest_weight} for k in keys if k in weight}
        if not similarities:
            return parts_by_key
        own_weight = self._matches.own
        highest_own_weight = max([own_weight.get(k, 0.0) for k in self._hits], default=0.0)
        share = 1.0
        if highest_own_weight:
            share = MEANING * (
                1 - highest_own_weight / max(highest_own_weight, self._matches.asked)
            )
        for key in keys:
            score_parts = parts_by_key.get(key, {})
            similarity_share = (
                share * similarities.get(key, 0.0) * (1 - score_parts.get("keyword", 0.0) / FADED)
            )
            if similarity_share > 0:
                score_parts["meaning"] = similarity_share
                parts_by_key[key] = score_parts
        return parts_by_key

    def _similar(self) -> dict[int, float]:
        """Scale similarity from 0, an unrelated row, to 1, the most similar one.

        Empty if all are equal.
        """
        lowest = self._similarity.floor
        highest = max(self._similarity.values(), default=0.0)
        if highest - lowest >= EQUAL:
            return {
                k: (self._similarity[k] - lowest) / (highest - lowest)
                for k in self._hits
                if k in self._similarity
            }
        return {}

    def _sessions(self, groups: Mapping[int, tuple[int, float]]) -> dict[tuple[int, float], float]:
        """Return the part of the score of each session: the sum of its best hits, normalised."""
        scores_by_session: defaultdict[tuple[int, float], list[float]] = defaultdict(list)
        for key, score in self._base.items():
            scores_by_session[groups[key]].append(score)
        sums = {
            group: sum(sorted(scores, reverse=True)[:SESSION_HITS])
            for group, scores in scores_by_session.items()
        }
        highest_sum = max(sums.values(), default=0.0) or 1.0
        return {group: SESSION * x / highest_sum for group, x in sums.items()}
