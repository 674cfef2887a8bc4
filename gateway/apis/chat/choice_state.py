"""What an answer that is intercepted has shown so far: its choices and their calls. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.wire.chat import Chunk, Segment
from gateway.wire.streamed_calls import StreamedCall, StreamedCalls


@dataclass(slots=True)
class InterceptedCall:
    """One tool call of a reply; `ours` is None while its name may still grow into one of ours."""

    call: StreamedCall
    ours: bool | None = None
    shown_as: int = -1
    held: list[tuple[Chunk, Segment]] = field(default_factory=list)


@dataclass(slots=True)
class ChoiceState:
    """What one choice has shown so far, over all rounds."""

    # Of this round.
    streamed: StreamedCalls = field(default_factory=StreamedCalls)
    # The same calls.
    calls: list[InterceptedCall] = field(default_factory=list)
    # What the first call of an index was shown as.
    places: dict[Any, int] = field(default_factory=dict)
    # So many calls from the first are decided, and what was held of them is shown.
    released: int = 0
    next_index: int = 0
    # A call of ours was taken out: indexes are ours to give.
    hid: bool = False
    # The finish the client saw.
    finish: str = ""
    # The finish the upstream gave in this round.
    reason: str = ""
    waiting: tuple[Chunk, Segment] | None = None
    # Last character shown.
    last: str = ""
    # A new round began and has shown no text yet.
    fresh: bool = False


class ShownChunks(list[bytes]):
    """What is shown for one chunk. returned: segments of that chunk that were held for a moment."""

    def __init__(self, chunk: Chunk | None = None) -> None:
        super().__init__()
        self.chunk = chunk
        self.returned: list[Segment] = []

    def in_order(self, chunk: Chunk, segments: list[Segment]) -> list[Segment]:
        """Return the segments to show of the chunk, as they stood in it."""
        if not self.returned:
            return segments
        visible_ids = {id(segment) for segment in [*segments, *self.returned]}
        return [segment for segment in chunk.segments if id(segment) in visible_ids]
