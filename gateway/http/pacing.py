"""Read streams in short steps, so that no stream blocks the event loop.

If a server sends faster than its stream is read, data is always ready: without pauses the event
loop would serve that stream only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

# The densest events, blank lines, take some 5 ms to read.
SLICE_BYTES = 1 << 13
# Of work, after which the event loop is released.
BUSY_SECONDS = 0.004
# A request takes some twenty turns of the loop. After this pause it has had several, where it would
# have had one if the loop were released for a single turn.
LOOP_PAUSE_SECONDS = 0.002
# A wait at least that long released the event loop anyway.
REAL_WAIT_SECONDS = 0.001


class PacedStream:
    """The pieces of a body, cut to `SLICE_BYTES`, pausing after `BUSY_SECONDS` of work."""

    __slots__ = ("_at", "_body", "_resumed_at", "_slice_source", "_worked")

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._slice_source = b""
        self._at = 0
        self._worked = 0.0
        self._resumed_at = perf_counter()

    def __aiter__(self) -> PacedStream:
        return self

    async def __anext__(self) -> bytes:
        now = perf_counter()
        self._worked += now - self._resumed_at
        if self._worked > BUSY_SECONDS:
            await asyncio.sleep(LOOP_PAUSE_SECONDS)
            self._worked = 0.0
        if self._at >= len(self._slice_source):
            data = await self._body.__anext__()
            self._resumed_at = perf_counter()
            if self._resumed_at - now > REAL_WAIT_SECONDS:
                self._worked = 0.0
            if len(data) <= SLICE_BYTES:
                return data
            self._slice_source = data
            self._at = 0
        data_slice = self._slice_source[self._at : self._at + SLICE_BYTES]
        self._at += SLICE_BYTES
        self._resumed_at = perf_counter()
        return data_slice

    async def aclose(self) -> None:
        """Close the underlying body."""
        closer = getattr(self._body, "aclose", None)
        if closer is not None:
            await closer()
