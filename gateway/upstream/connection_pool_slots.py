"""Limits the connections of a provider; waiting callers are served in order."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.errors import Unavailable


class ConnectionSlots:
    """Connection slots of one provider. free_count: the unused ones."""

    def __init__(self, capacity: int) -> None:
        self.free_count = capacity
        self._capacity = capacity
        # Waiting callers, oldest first.
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many callers wait for a slot."""
        return len(self._waiters)

    async def take(self, until: float) -> None:
        """Take a slot, waiting until the loop's time `until` at most. Raises Unavailable."""
        if self.free_count:
            self.free_count -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except (TimeoutError, asyncio.CancelledError) as e:
            if waiter.done() and not waiter.cancelled():
                # Granted at the same moment.
                self.give()
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"All {self._capacity} connections to the upstream are in use. Try again "
                    "shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self) -> None:
        """Give a slot back; it passes to the caller who waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free_count += 1
