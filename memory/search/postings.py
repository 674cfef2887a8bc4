"""The words of one scope's rows in memory, so that a quick search need not ask the index. Pure.

Which rows a word is in, and in which columns, stands in arrays, some 800 bytes a message. What is
made of it is what `weigh_postings` makes of the index's answers, to the last bit, so that a search
by either finds the same (a property test compares them).

Rows are named by their place in the order of their keys: of two rows the newer one has the greater
number, as with keys.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import NamedTuple

from memory.search.query import TERMS_VERSION, QueryTerms
from memory.search.ranking import COLUMNS, SATURATION, Matches, SearchHits

# Of a scope: what four bits of columns leave of sixteen.
MOST_ROWS = 4096
MASK_BITS = 4
BITS = {"body": 1, "speaker": 2, "prev": 4, "day": 8}
SPEAKER = BITS["speaker"]
BODY = BITS["body"]
ANY_COLUMN = (1 << MASK_BITS) - 1
# Of the columns, in `parse_terms`.
LETTERS = {name[0]: bit for name, bit in BITS.items()}
# In place of a neighbour.
NOBODY = 0xFFFF
# Of a row, a conversation, an array.
ROW_BYTES, PLACE_BYTES, RUN_BYTES = 48, 150, 120
# Of a word in a row.
POSTING_BYTES = 8
# Of a posting: the row and its columns, and the word.
CODE_BITS, HASH_BITS = 16, 48
CODE = (1 << CODE_BITS) - 1
HASH = (1 << HASH_BITS) - 1
# Postings that are merged at once. Of a scope with more, some are in further arrays, until they are
# a share of all: then all are read anew.
MOST_MERGED = 1 << 16
ADDED_SHARE = 0.25


class Stale(Exception):
    """What happened to the rows is not a mere addition: they have to be read again."""


class PostedRow(NamedTuple):
    """A row. place: its conversation. is_said: a neighbour of others. is_shown: may be found.

    A row that is said in a hidden conversation is not shown, whatever this says.
    """

    key: int
    place: int
    at: float
    is_said: bool
    is_shown: bool


class StoredTerm(NamedTuple):
    """A term of a query: the stored forms of its words, and the columns that it is looked up in."""

    forms: tuple[str, ...]
    columns: int
    is_topical: bool = False


class StoredTerms(NamedTuple):
    """What a query is to postings. voice: the stored form of its implied speaker."""

    terms: list[StoredTerm]
    voice: str | None


class PostedRows:
    """The rows of a scope, in the order of their keys. hidden: conversations that are not shown."""

    __slots__ = ("_hidden", "_last", "after", "at", "before", "keys", "places", "shown")

    def __init__(
        self, rows: Iterable[PostedRow] = (), hidden_numbers: Collection[int] = frozenset()
    ) -> None:
        self._hidden = frozenset(hidden_numbers)
        self.keys = array("q")
        self.places = array("q")
        self.at = array("d")
        self.before = array("H")
        self.after = array("H")
        self.shown = bytearray()
        # The newest said row of each conversation.
        self._last: dict[int, int] = {}
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        return ROW_BYTES * len(self) + PLACE_BYTES * (len(self._last) + len(self._hidden))

    def add(self, row: PostedRow) -> None:
        """Add a row that is newer than all others. Raises Stale."""
        number = len(self.keys)
        if number >= MOST_ROWS or (number and row.key <= self.keys[-1]):
            raise Stale
        self.keys.append(row.key)
        self.places.append(row.place)
        self.at.append(row.at)
        self.shown.append(row.is_shown and row.place not in self._hidden)
        self.before.append(NOBODY)
        self.after.append(NOBODY)
        if row.is_said:
            previous_number = self._last.get(row.place, NOBODY)
            if previous_number != NOBODY:
                self.before[number] = previous_number
                self.after[previous_number] = number
            self._last[row.place] = number

    def link(self, number: int, previous_number: int) -> None:
        """Make two rows neighbours, which no conversation does."""
        self.before[number] = previous_number
        self.after[previous_number] = number

    def number(self, key: int) -> int | None:
        """Return the number of a row by its key."""
        i = bisect_left(self.keys, key)
        if i < len(self.keys) and self.keys[i] == key:
            return i
        return None

    # --- candidates, as a ranking asks for them

    def leading(self, matches: Matches, count: int) -> list[SearchHits]:
        """Return the best rows that may be shown, at most so many; of equals the newest first."""
        is_shown = self.shown
        if not matches.weight:
            named_rows = sorted((n for n in matches.named if is_shown[n]), reverse=True)
            return [self._hit(n) for n in named_rows[:count]]
        weighted_rows = [(x, n) for n, x in matches.weight.items() if is_shown[n]]
        if len(weighted_rows) > 2 * count:
            minimum_weight = sorted([x for x, _ in weighted_rows])[-count]
            weighted_rows = [pair for pair in weighted_rows if pair[0] >= minimum_weight]
        weighted_rows.sort(reverse=True)
        return [self._hit(n) for _, n in weighted_rows[:count]]

    def get(self, keys: Sequence[int]) -> dict[int, SearchHits]:
        """Return the rows that may be shown, in order."""
        return {n: self._hit(n) for n in keys if self.shown[n]}

    def neighbours(
        self, keys: Sequence[int]
    ) -> dict[int, tuple[SearchHits | None, SearchHits | None]]:
        """Return the rows before and after each of these, if they may be shown."""
        return {n: (self._beside(self.before[n]), self._beside(self.after[n])) for n in keys}

    def _beside(self, number: int) -> SearchHits | None:
        if number != NOBODY and self.shown[number]:
            return self._hit(number)
        return None

    def _hit(self, number: int) -> SearchHits:
        return SearchHits(number, self.places[number], self.at[number], "")


@dataclass(slots=True)
class ScopePostings:
    """The rows of a scope with the words of their documents.

    pending: rows without a document yet, with their conversations. ahead: rows whose document was
    made of their text, before the index has it. version: of what made the words.
    """

    rows: PostedRows
    pending: dict[int, int] = field(default_factory=dict)
    ahead: set[int] = field(default_factory=set)
    version: int = TERMS_VERSION
    # Sorted postings, the largest first.
    _runs: list[array[int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        runs = sum([RUN_BYTES + POSTING_BYTES * len(run) for run in self._runs])
        pending_bytes = PLACE_BYTES * (len(self.pending) + len(self.ahead))
        return self.rows.size + pending_bytes + runs

    @classmethod
    def load(cls, rows: PostedRows, listing: str) -> ScopePostings:
        """Return the postings of rows; what no word is listed of is pending.

        listing: see `parse_terms`. Raises Stale.
        """
        terms = parse_terms(rows, listing)
        if len({hash(name) & HASH for name in terms}) < len(terms):
            # Two words that cannot be told apart.
            raise Stale
        row_numbers: set[int] = set()
        postings: list[int] = []
        for name, codes in terms.items():
            word = (hash(name) & HASH) << CODE_BITS
            postings += [word | code for code in codes]
            row_numbers.update(codes)
        indexed = {code >> MASK_BITS for code in row_numbers}
        pending_rows = {n: rows.places[n] for n in range(len(rows)) if n not in indexed}
        return cls(rows, pending_rows, _runs=[array("Q", sorted(postings))] if postings else [])

    def add_row(self, row: PostedRow) -> None:
        """Add a row whose document follows. Raises Stale."""
        self.rows.add(row)
        self.pending[len(self.rows) - 1] = row.place

    def add_documents(self, documents: Mapping[int, Mapping[str, int]]) -> None:
        """Add the documents of rows that wait for them.

        documents: by key, the words with their columns. Raises Stale.
        """
        postings: list[int] = []
        numbers: list[int] = []
        for key, words in documents.items():
            number = self.rows.number(key)
            if number is None or number not in self.pending:
                raise Stale
            row = number << MASK_BITS
            postings += [
                (code & HASH) << CODE_BITS | row | columns
                for code, columns in zip(map(hash, words), words.values(), strict=True)
            ]
            numbers.append(number)
        if postings:
            postings.sort()
            self._add_run(array("Q", postings))
        for number in numbers:
            del self.pending[number]

    def _add_run(self, run: array[int]) -> None:
        """Add sorted postings, merged with those that are not much more. Raises Stale.

        So each is merged a few times at most (O'Neil et al., The Log-Structured Merge-Tree, 1996).
        """
        runs = [*self._runs, run]
        while len(runs) > 1 and len(runs[-2]) < min(2 * len(runs[-1]), MOST_MERGED):
            last_run = runs.pop()
            previous_run = runs.pop()
            # Both are in order, which sorting makes use of.
            runs.append(array("Q", sorted(previous_run.tolist() + last_run.tolist())))
        added_postings = sum(map(len, runs[1:]))
        if len(runs[0]) >= MOST_MERGED and added_postings > ADDED_SHARE * len(runs[0]):
            raise Stale
        self._runs = runs

    def take_ahead(self, key: int) -> bool:
        """Note that the index has a document; return whether it was here before."""
        number = self.rows.number(key)
        if number is None or number not in self.ahead:
            return False
        self.ahead.remove(number)
        return True

    def codes(self, form: str) -> list[int]:
        """Return the rows that have a stored form, each with its columns."""
        first_code = (hash(form) & HASH) << CODE_BITS
        last_code = first_code | CODE
        codes: list[int] = []
        for run in self._runs:
            start = bisect_left(run, first_code)
            if start < len(run) and run[start] <= last_code:
                end = bisect_right(run, last_code, start + 1)
                codes += [posting & CODE for posting in run[start:end]]
        return codes

    def weigh(self, terms: Sequence[StoredTerm]) -> Matches:
        """Return what `weigh_postings` does, without the rows of who is spoken to."""
        matches = Matches(size=len(self.rows))
        weight = matches.weight
        size = matches.size
        for forms, columns, is_topical in terms:
            if len(forms) == 1:
                codes = self.codes(forms[0])
            else:
                codes = self._any_of(forms)
            if columns != ANY_COLUMN and codes:
                codes = [c for c in codes if c & columns]
            df = len(codes)
            rarity = math.log(1 + (max(size, df) - df + 0.5) / (df + 0.5))
            matches.asked += rarity
            if not codes:
                continue
            column_weights = _COLUMN_WEIGHTS[columns]
            row_weights = [0.0] * (1 << MASK_BITS)
            for code in codes:
                bits = code & ANY_COLUMN
                number = code >> MASK_BITS
                if not (row_weight := row_weights[bits]) and (x := column_weights[bits]):
                    row_weight = rarity * x * (1 + SATURATION) / (x + SATURATION)
                    row_weights[bits] = row_weight
                if row_weight:
                    weight[number] = weight.get(number, 0.0) + row_weight
            if is_topical:
                matches.sharing.update([c >> MASK_BITS for c in codes if c & BODY])
            if columns & SPEAKER:
                matches.named.update([c >> MASK_BITS for c in codes if c & SPEAKER])
        return matches

    def said_by(self, form: str) -> set[int]:
        """Return the rows whose speaker has this word."""
        return {c >> MASK_BITS for c in self.codes(form) if c & SPEAKER}

    def _any_of(self, forms: Sequence[str]) -> list[int]:
        """Return the rows that have any of these forms, with the columns of all."""
        code_lists = [codes for form in dict.fromkeys(forms) if (codes := self.codes(form))]
        if len(code_lists) < 2:
            if code_lists:
                return code_lists[0]
            return []
        # The codes of one row differ in their columns alone.
        code_by_number: dict[int, int] = {}
        for code in chain.from_iterable(code_lists):
            number = code >> MASK_BITS
            code_by_number[number] = code_by_number.get(number, 0) | code
        return list(code_by_number.values())


def _column_weight(columns: int, allowed_columns: int) -> float:
    """Return the weight of the columns that have a word, added up as `weigh_postings` does."""
    present_columns = columns & allowed_columns
    total_weight = 0.0
    for name, weight in COLUMNS.items():
        if present_columns & BITS[name]:
            total_weight += weight
    return total_weight


# By the columns that a term is looked up in, and those that have it.
_COLUMN_WEIGHTS = [
    [_column_weight(there, allowed) for there in range(1 << MASK_BITS)] for allowed in range(16)
]


def parse_terms(rows: PostedRows, listing: str) -> dict[str, array[int]]:
    """Return the rows and columns of each stored form.

    listing: a line for each form, with the rows' keys, each followed by the first letter of a
    column: `tea 17b,17p,19b`. Raises Stale if a row is not there.
    """
    numbers: dict[str, int] = {}
    for i, key in enumerate(rows.keys):
        for letter, letter_bit in LETTERS.items():
            numbers[f"{key}{letter}"] = i << MASK_BITS | letter_bit
    postings_by_form: dict[str, array[int]] = {}
    try:
        for line in listing.split("\n") if listing else ():
            form, _, places = line.partition(" ")
            columns: dict[int, int] = {}
            for place in places.split(","):
                code = numbers[place]
                columns[code >> MASK_BITS] = columns.get(code >> MASK_BITS, 0) | code & ANY_COLUMN
            postings_by_form[form] = array(
                "H", [n << MASK_BITS | column_bits for n, column_bits in columns.items()]
            )
    except KeyError as e:
        raise Stale from e
    return postings_by_form


@cache
def _column_bits(columns: tuple[str, ...]) -> int:
    return sum([BITS[name] for name in columns])


def stored_terms(query_terms: QueryTerms, forms: Mapping[str, str]) -> StoredTerms:
    """Return the terms of a query as they are stored. forms: the stored form of each word."""
    form = forms.__getitem__
    terms = [
        StoredTerm(tuple(map(form, words)), _column_bits(columns), is_topical)
        for _, words, columns, is_topical in query_terms.terms
    ]
    return StoredTerms(terms, None if query_terms.voice is None else forms[query_terms.voice])
