"""Limit the concurrent requests of a target; waiting requests are served in order."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from math import ceil

from gateway.errors import Unavailable
from gateway.routing.router import Target


class ConcurrencyLimiter:
    """Concurrency slots by target, in this process.

    sharers: how many processes share the limits; each has its part, rounded up.
    """

    def __init__(self, sharers: Callable[[], int] = lambda: 1) -> None:
        self._sharers = sharers
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def full(self, target: Target) -> bool:
        return target.concurrent > 0 and self.limit_of(target) <= self._held[target.label]

    def limit_of(self, target: Target) -> int:
        """Return how many slots of a target are this process's."""
        return ceil(target.concurrent / max(1, self._sharers()))

    async def take(self, target: Target, patience: float) -> None:
        """Take one of the target's slots, within `patience` seconds. Raises Unavailable."""
        name, limit = target.label, self.limit_of(target)
        waiting = self._waiting.get(name)
        if not waiting and self._held[name] < limit:
            self._held[name] += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, deque())
        waiting.append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as e:
            if waiter.done() and not waiter.cancelled():
                self.give(name)  # granted at the same moment
            elif waiter in waiting:  # not if it was just granted or skipped at the same moment
                waiting.remove(waiter)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"The target {name!r} is serving its limit of {limit} concurrent requests, "
                    f"and none ended within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, name: str) -> None:
        """Release a slot; it passes to the request that waited longest."""
        waiting = self._waiting.get(name)
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._waiting.pop(name, None)
        self._held[name] -= 1
        if self._held[name] <= 0:
            del self._held[name]


class SlotBody:
    """A response body that releases its slot once, however it ends."""

    def __init__(self, body: AsyncIterator[bytes], free: Callable[[], None]) -> None:
        self._body, self._free = body, free
        self._over = False

    def __aiter__(self) -> SlotBody:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._body)
        except BaseException:
            self._end()
            raise

    async def aclose(self) -> None:
        self._end()
        if (closer := getattr(self._body, "aclose", None)) is not None:
            await closer()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._free()
