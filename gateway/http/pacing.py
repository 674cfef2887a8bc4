"""Streams taken in short steps, so that one of them holds up nobody else.

A server that sends faster than its stream can be read leaves its reader with something to do at
every look: without a rest the event loop would serve that stream alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter, sleep

PAUSE_SECONDS = 0.005  # seconds in which another request is usually served
LONG_STEP_BYTES = 1 << 22  # bytes: a step over fewer takes no longer than that
SLICE_BYTES = 1 << 13  # bytes: the densest of events, blank lines, take some 5 ms to read
BUSY_SECONDS = 0.004  # seconds of work after which others have their turn
REAL_WAIT_SECONDS = 0.001  # seconds that a wait lasts in which others had theirs


class PacedStream:
    """The pieces of a body, cut to `SLICE` bytes, with a rest after each `BUSY` seconds of work."""

    __slots__ = ("_at", "_body", "_given", "_rest", "_worked")

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._rest, self._at = b"", 0
        self._worked, self._given = 0.0, perf_counter()

    def __aiter__(self) -> PacedStream:
        return self

    async def __anext__(self) -> bytes:
        asked = perf_counter()
        self._worked += asked - self._given
        if self._worked > BUSY_SECONDS:
            await asyncio.sleep(0)
            self._worked = 0.0
        if self._at >= len(self._rest):
            data = await self._body.__anext__()
            self._given = perf_counter()
            if self._given - asked > REAL_WAIT_SECONDS:
                self._worked = 0.0
            if len(data) <= SLICE_BYTES:
                return data
            self._rest, self._at = data, 0
        piece = self._rest[self._at : self._at + SLICE_BYTES]
        self._at += SLICE_BYTES
        self._given = perf_counter()
        return piece

    async def aclose(self) -> None:
        """Close what it reads from."""
        closer = getattr(self._body, "aclose", None)
        if closer is not None:
            await closer()


def rest(size: int) -> None:
    """Let the event loop go on, between two steps of a thread over `size` bytes.

    A step over tens of megabytes keeps the interpreter for tens of milliseconds, and a request
    needs it several times. Never called on the event loop.
    """
    if size > LONG_STEP_BYTES:
        sleep(PAUSE_SECONDS)
