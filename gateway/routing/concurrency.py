"""How many requests a target has at a time, where that is limited: who comes beyond it waits a
while, first come first served.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

from gateway.errors import Unavailable
from gateway.routing.router import Target


class ConcurrencyLimiter:
    """Places by target, in this process."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def full(self, target: Target) -> bool:
        return 0 < target.concurrent <= self._held[target.label]

    async def take(self, target: Target, patience: float) -> None:
        """One of the target's places, within `patience` seconds. Raises Unavailable."""
        name, limit = target.label, target.concurrent
        waiting = self._waiting.get(name)
        if not waiting and self._held[name] < limit:
            self._held[name] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, deque())
        waiting.append(turn)
        try:
            async with asyncio.timeout(patience):
                await turn
        except BaseException as e:
            if turn.done() and not turn.cancelled():
                self.give(name)  # the place came in the same moment
            elif (
                turn in waiting
            ):  # not so where one that ended has passed it over in the same moment
                waiting.remove(turn)
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"The target {name!r} has its {limit} requests at a time, and none ended "
                    f"within {patience:g} s. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self, name: str) -> None:
        """A place is free again: who waited longest has it."""
        waiting = self._waiting.get(name)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(name, None)
        self._held[name] -= 1
        if self._held[name] <= 0:
            del self._held[name]


class SlotBody:
    """The bytes of an answer whose end, however it comes, gives a place back, once."""

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
