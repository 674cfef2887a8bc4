"""Streams taken in short steps, so that one of them holds up nobody else.

A server that sends faster than its stream can be read leaves its reader with something to do at
every look: without a rest the event loop would serve that stream alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter

SLICE = 1 << 13  # bytes: the densest of events, blank lines, take some 5 ms to read
BUSY = 0.004  # seconds of work after which others have their turn
WAITED = 0.001  # seconds that a wait lasts in which others had theirs


class Paced:
    """The pieces of a body, cut to `SLICE` bytes, with a rest after each `BUSY` seconds of work."""

    __slots__ = ("_at", "_body", "_given", "_rest", "_worked")

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._rest, self._at = b"", 0
        self._worked, self._given = 0.0, perf_counter()

    def __aiter__(self) -> Paced:
        return self

    async def __anext__(self) -> bytes:
        asked = perf_counter()
        self._worked += asked - self._given
        if self._worked > BUSY:
            await asyncio.sleep(0)
            self._worked = 0.0
        if self._at >= len(self._rest):
            data = await self._body.__anext__()
            self._given = perf_counter()
            if self._given - asked > WAITED:
                self._worked = 0.0
            if len(data) <= SLICE:
                return data
            self._rest, self._at = data, 0
        piece = self._rest[self._at : self._at + SLICE]
        self._at += SLICE
        self._given = perf_counter()
        return piece

    async def aclose(self) -> None:
        """Close what it reads from."""
        closer = getattr(self._body, "aclose", None)
        if closer is not None:
            await closer()
