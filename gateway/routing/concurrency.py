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
        self._taken_slots: Counter[str] = Counter()
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    def full(self, target: Target) -> bool:
        return target.concurrent > 0 and self.limit_of(target) <= self._taken_slots[target.label]

    def limit_of(self, target: Target) -> int:
        """Return how many slots of a target are this process's."""
        return ceil(target.concurrent / max(1, self._sharers()))

    async def take(self, target: Target, patience: float) -> None:
        """Take one of the target's slots, within `patience` seconds. Raises Unavailable."""
        name = target.label
        limit = self.limit_of(target)
        waiters = self._waiters.get(name)
        if not waiters and self._taken_slots[name] < limit:
            self._taken_slots[name] += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(name, deque())
        waiters.append(waiter)
        try:
            async with asyncio.timeout(patience):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as e:
            if waiter.done() and not waiter.cancelled():
                # Granted at the same moment.
                self.give(name)
            elif waiter in waiters:
                # Not if it was just granted or skipped at the same moment.
                waiters.remove(waiter)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"The target {name!r} is serving its limit of {limit} concurrent requests, "
                    f"and none ended within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, name: str) -> None:
        """Release a slot; it passes to the request that waited longest."""
        waiters = self._waiters.get(name)
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._waiters.pop(name, None)
        self._taken_slots[name] -= 1
        if self._taken_slots[name] <= 0:
            del self._taken_slots[name]


class SlotBody:
    """A response body that releases its slot once, however it ends."""

    def __init__(self, body: AsyncIterator[bytes], give_slots: Callable[[], None]) -> None:
        self._body = body
        self._give_slots = give_slots
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
            self._give_slots()
