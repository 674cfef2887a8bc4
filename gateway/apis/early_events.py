"""Events of unknown kinds about parts that no event has told yet. Pure.

Such an event tells nothing of its part: neither that it began, nor its id, nor its kind. Whether it
is shown depends on whose the part is, so it waits until that begins.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.apis.envelope_events import check_count
from gateway.wire.answer_parts import AnswerPart, PartKey
from gateway.wire.chat import Json

EarlyEvent = tuple[PartKey, Json, bytes]


class EarlyEvents:
    """The waiting events of one round."""

    def __init__(self) -> None:
        self._by_place: dict[int | str, list[EarlyEvent]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def add(self, key: PartKey, event: Json, event_bytes: bytes) -> None:
        """Keep an event. Raises StreamIncomplete for too many."""
        self._count += 1
        check_count(self._count)
        place = key.index if key.index is not None else key.idents[0]
        self._by_place.setdefault(place, []).append((key, event, event_bytes))

    def pop(self, part: AnswerPart) -> Iterator[EarlyEvent]:
        """Take those out that tell the index or an id of a part."""
        places: list[int | str] = [*part.idents]
        if part.index is not None:
            places.append(part.index)
        for place in places:
            yield from self._by_place.pop(place, ())

    def pop_all(self) -> list[EarlyEvent]:
        """Take all out."""
        waiting = self._by_place
        self._by_place = {}
        return [early_event for events in waiting.values() for early_event in events]
