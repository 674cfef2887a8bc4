"""The parts of a round, and which of them a client sees. Pure."""

from __future__ import annotations

from itertools import chain
from typing import Any

from gateway.apis.early_events import EarlyEvents
from gateway.wire.answer_parts import AnswerPart, Parts
from gateway.wire.chat import Json
from gateway.wire.json_weight import LIGHT_BYTES

# Of all parts, whose lengths are added at once.
LIGHT_PIECES = 4096


class MaskedPart(AnswerPart):
    """A part of a round.

    item: as it began, or whole. is_whole: which of these. pieces: what it grew by, by member.
    hidden: it is not shown; None while that is not known. place: where it is shown. held: its
    events, until then; of reasoning, its end. is_marked: a call of ours followed it.
    """

    __slots__ = ("held", "hidden", "is_marked", "is_whole", "item", "pieces", "place")

    def __init__(self) -> None:
        super().__init__()
        self.item: Json = {}
        self.is_whole = self.is_marked = False
        self.pieces: dict[str, list[str]] = {}
        self.hidden: bool | None = None
        self.place = -1
        self.held: list[tuple[Json, bytes]] = []

    def grow(self, member: str, text: Any) -> None:
        """Add a piece."""
        self.pieces.setdefault(member, []).append(str(text or ""))

    def text_of(self, member: str) -> str:
        """Return what a member has grown to."""
        return "".join(self.pieces.get(member, ()))


class MaskedParts(Parts[MaskedPart]):
    """The parts of a round, and events that wait for some.

    first_place: where the first of them is shown that is. is_heavy: one is so long that others
    would wait while it is written.
    """

    def __init__(self, first_place: int = 0) -> None:
        super().__init__(MaskedPart)
        # So many parts, from the first, are decided.
        self._released = 0
        self.next_place = first_place
        self.early = EarlyEvents()
        self.is_heavy = False

    @property
    def is_long(self) -> bool:
        """Whether others would wait while the parts are joined and written."""
        if self.is_heavy:
            return True
        members = [pieces for part in self.parts for pieces in part.pieces.values()]
        return (
            sum(map(len, members)) > LIGHT_PIECES
            or sum(map(len, chain.from_iterable(members))) > LIGHT_BYTES
        )

    def next_round(self) -> MaskedParts:
        """Return the parts of the next round, none so far; what these hold is written with them."""
        parts = MaskedParts(self.next_place)
        parts.is_heavy = self.is_long
        return parts

    def is_held(self, part: MaskedPart) -> bool:
        """Tell whether a part waits, itself or for one before it."""
        return part.order >= self._released

    def after(self, part: MaskedPart) -> MaskedPart | None:
        """Return the part that follows another."""
        order = part.order + 1
        if order < len(self.parts):
            return self.parts[order]
        return None

    def undecided(self) -> list[MaskedPart]:
        """Return the parts from the first on of which it is not known whose they are."""
        return self.parts[self._released :]

    def by_index(self) -> list[MaskedPart]:
        """Return the parts as the server numbers them; as they begin, where it does not."""
        indexes = [part.index for part in self.parts]
        if None in indexes or len(set(indexes)) < len(indexes):
            return self.parts
        return sorted(self.parts, key=lambda part: part.index or 0)

    def release(self) -> list[MaskedPart]:
        """Give each decided part its place, in their order; return those that are visible."""
        visible_parts = []
        while self._released < len(self.parts):
            part = self.parts[self._released]
            if part.hidden is None:
                break
            self._released += 1
            if not part.hidden:
                part.place = self.next_place
                self.next_place += 1
                visible_parts.append(part)
        return visible_parts
