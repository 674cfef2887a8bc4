"""How many connections a provider has at a time: who comes beyond them waits, first come first
served.
"""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.errors import Unavailable


class ConnectionSlots:
    """Places of one provider. free: those that nobody holds."""

    def __init__(self, most: int) -> None:
        self.free = most
        self._most = most
        self._turns: deque[asyncio.Future[None]] = deque()  # it passes from hand to hand

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._turns)

    async def take(self, until: float) -> None:
        """Take a place, by the loop's time `until` at the latest. Raises Unavailable."""
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except BaseException as e:
            if turn.done() and not turn.cancelled():
                self.give()  # it came in the same moment
            if isinstance(e, TimeoutError):
                raise Unavailable(
                    f"All {self._most} connections to the upstream are in use. Try again shortly.",
                    headers=[(b"retry-after", b"1")],
                ) from e
            raise

    def give(self) -> None:
        """Give a place back: who waited longest has it."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
