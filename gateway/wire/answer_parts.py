"""The parts of a streamed answer: which of them an event belongs to. Pure.

A part is known by its id, its order and its index together, since servers leave out, repeat or
change each of these:

- Every beginning is a new part, also at an index that was used before.
- An id leads to the newest part that has it, first among those of the same index.
- An index leads to the newest open part there of the same kind; an end, to the oldest.
- An event with neither belongs to the newest open part of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

import msgspec

# Of one part that are remembered: a server may invent another with each event.
IDENTS = 8
# Of one answer.
MAX_PARTS = 4096
# That are looked at for one of a list whose id is not known.
MATCHED_PARTS = 256


class PartKey(msgspec.Struct, frozen=True):
    """What an event tells of its part.

    index: None where it is missing. idents: the part's own id and its call's, without blank ones.
    kind: "" for any. name: of what is called.
    """

    index: int | None
    idents: tuple[str, ...] = ()
    kind: str = ""
    name: str = ""


class AnswerPart:
    """One part. order: its place among all. has_begun: an event said so. is_fresh: and no other."""

    __slots__ = ("has_begun", "has_ended", "idents", "index", "is_fresh", "kind", "name", "order")

    def __init__(self) -> None:
        self.order = 0
        self.index: int | None = None
        self.idents: tuple[str, ...] = ()
        self.kind = self.name = ""
        self.has_begun = self.has_ended = self.is_fresh = False

    def may_be(self, key: PartKey) -> bool:
        """Tell whether a key contradicts neither kind nor name."""
        same_kind = not (self.kind and key.kind) or self.kind == key.kind
        return same_kind and (not (self.name and key.name) or self.name == key.name)


P = TypeVar("P", bound=AnswerPart)


class Parts(Generic[P]):
    """The parts of one answer, in their order. make: makes an empty one."""

    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self.parts: list[P] = []
        self._by_index: dict[int, list[P]] = {}
        self._by_ident: dict[str, list[P]] = {}
        self._open: dict[P, None] = {}
        # Piece: most follow one of the same part.
        self._newest_part: tuple[PartKey, P] | None = None

    def begin(self, key: PartKey) -> P:
        """Return a new part, unless the event repeats the one before or comes after a piece."""
        self._newest_part = None
        part = self._find_repeated(key) or self._add(key)
        part.has_begun = part.is_fresh = True
        return part

    def imply(self, key: PartKey) -> P:
        """Return a new part whose beginning no event told."""
        self._newest_part = None
        return self._add(key)

    def find(self, key: PartKey) -> P | None:
        """Return the part that a piece belongs to; None where no part has begun for it."""
        if (again := self.find_again(key)) is not None:
            return again
        part = self._find_by_ident(key) or self._find_open(key) or self._find_ended(key)
        if part is not None:
            part.is_fresh = False
            self._learn(part, key)
            self._newest_part = key, part
        return part

    def find_again(self, key: PartKey) -> P | None:
        """Return the part of the newest piece, where a key tells the same as that piece did."""
        keyed_part = self._newest_part
        if keyed_part is not None and keyed_part[0] == key:
            return keyed_part[1]
        return None

    def look_up(self, key: PartKey) -> P | None:
        """Return the part of an event that tells nothing of it; None where none has begun."""
        return self._find_by_ident(key) or self._find_open(key) or self._find_ended(key)

    def find_end(self, key: PartKey) -> P | None:
        """Return the part that an end belongs to; None where no part has begun for it."""
        part = self._find_by_ident(key)
        if part is None:
            part = next((p for p in self._open_at(key.index) if p.may_be(key)), None)
        if part is None:
            return None
        return self._learn(part, key)

    def open_parts(self) -> list[P]:
        """Return the parts without an end, in their order."""
        return sorted(self._open, key=lambda part: part.order)

    def end(self, part: P) -> None:
        """Note that a part has ended."""
        part.has_ended = True
        self._newest_part = None
        self._open.pop(part, None)

    def match(self, keys: Sequence[PartKey]) -> list[P | None]:
        """Return the parts that a list of all parts tells of, None for each that is not here."""
        listed_idents = {ident for key in keys for ident in key.idents}
        open_parts = dict.fromkeys(self.parts)
        matches: list[P | None] = []
        for key in keys:
            part_candidates = (
                p for i in key.idents for p in self._by_ident.get(i, ()) if p in open_parts
            )
            part = next((p for p in part_candidates if p.may_be(key)), None)
            if part is None:
                unnamed = (
                    p
                    for p in islice(open_parts, MATCHED_PARTS)
                    if not listed_idents.intersection(p.idents)
                )
                part = next((p for p in unnamed if p.may_be(key)), None)
            if part is not None:
                del open_parts[part]
                self._learn(part, key)
            matches.append(part)
        return matches

    def _find_repeated(self, key: PartKey) -> P | None:
        """Return the open part of a beginning that came before: it has the same id."""
        if not key.idents or not self._open:
            return None
        newest_part = next(reversed(self._open))
        may_repeat = newest_part.is_fresh or not newest_part.has_begun
        same_idents = set(key.idents).issuperset(newest_part.idents) and newest_part.idents != ()
        same_index = newest_part.index == key.index
        if may_repeat and same_idents and same_index and newest_part.may_be(key):
            return newest_part
        return None

    def _add(self, key: PartKey) -> P:
        part = self._make()
        part.order = len(self.parts)
        part.index = key.index
        self.parts.append(part)
        self._open[part] = None
        if key.index is not None:
            self._by_index.setdefault(key.index, []).append(part)
        return self._learn(part, key)

    def _learn(self, part: P, key: PartKey) -> P:
        """Take what a key tells of its part."""
        part.kind = part.kind or key.kind
        part.name = part.name or key.name
        if part.index is None and key.index is not None:
            part.index = key.index
            self._by_index.setdefault(key.index, []).append(part)
        for ident in key.idents:
            if ident not in part.idents and len(part.idents) < IDENTS:
                part.idents += (ident,)
                self._by_ident.setdefault(ident, []).append(part)
        return part

    def _find_by_ident(self, key: PartKey) -> P | None:
        """Return the newest part with an id: rather one of the same index, or an open one."""
        best_part = None
        score = -1
        for ident in key.idents:
            for part in reversed(self._by_ident.get(ident, ())):
                same_index = key.index is None or part.index in (None, key.index)
                value = 2 * same_index + (not part.has_ended)
                if value > score and part.may_be(key):
                    best_part = part
                    score = value
                if score == 3:
                    return best_part
        return best_part

    def _open_at(self, index: int | None) -> list[P]:
        """Return the open parts of an index; without one, all of them."""
        if index is None:
            return list(self._open)
        # A server may leave the index out where a part begins.
        at_index = self._by_index.get(index)
        if at_index is not None and len(at_index) <= len(self._open):
            return [part for part in at_index if not part.has_ended]
        at = None if at_index is None else index
        return [part for part in self._open if part.index == at]

    def _find_open(self, key: PartKey) -> P | None:
        part = next((p for p in reversed(self._open_at(key.index)) if p.may_be(key)), None)
        if part is None or part.has_begun or not (key.idents and part.idents):
            return part
        # Where no event told a beginning, another id is another part.
        return None

    def _find_ended(self, key: PartKey) -> P | None:
        """Return the newest part of an index, for a piece that comes after its end."""
        if key.index is None or not (at_index := self._by_index.get(key.index)):
            return None
        part = at_index[-1]
        is_another = bool(key.idents and part.idents) or not part.may_be(key)
        if is_another:
            return None
        return part
