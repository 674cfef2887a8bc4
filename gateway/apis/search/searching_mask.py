"""A mask that also shows searches of the operator's tool as those of the vendor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from gateway.apis.envelope import EnvelopeMask
from gateway.apis.masked_parts import MaskedPart
from gateway.apis.search.search_results import SearchCitations
from gateway.wire.answer_parts import PartKey
from gateway.wire.chat import Json


class SearchingMask(EnvelopeMask):
    """Shows parts of the gateway's own between rounds, and citations in texts behind them.

    citations: None for a request without a vendor's search. searches: shown so far.
    """

    citations: SearchCitations | None = None
    searches = 0

    @abstractmethod
    def lift_part(self, place: int, part: Json) -> Iterable[Json]:
        """Return a whole part as events."""

    @abstractmethod
    def cite(self, event: Json, part: MaskedPart, citations: SearchCitations) -> Sequence[Json]:
        """Return the events that stand for one, with what it cites; none where it cites nothing."""

    def show_search(self, parts: Sequence[Json]) -> bytes:
        """Show the parts of one search behind those of the round."""
        self.searches += 1
        self._hid = True
        event_bytes: list[bytes] = []
        for part in parts:
            place = self._parts.next_place
            self._parts.next_place += 1
            self.shown.append(part)
            event_bytes += [self.render(event, b"", place) for event in self.lift_part(place, part)]
        return b"".join(event_bytes)

    def _show_part(self, event: Json, event_bytes: bytes, part: MaskedPart, key: PartKey) -> bytes:
        if self.citations and (events := self.cite(event, part, self.citations)):
            return b"".join(self.render(cited_event, b"", part.place) for cited_event in events)
        return super()._show_part(event, event_bytes, part, key)
