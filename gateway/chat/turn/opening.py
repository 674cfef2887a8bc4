"""Writes a request to the store while the upstream works on it."""

from __future__ import annotations

import asyncio
from functools import partial

from memory import ErasedMeanwhile, Session, StoreUnavailable

# That a request waits for a whole answer, to be written with it.
TOGETHER_SECONDS = 0.05
# more for a store that is late, once all of a round has been shown: a whole answer waits 250 ms at
# most
STORE_SECONDS = 0.1


class RequestOpening:
    """Makes one request durable.

    streamed: the client sees the answer as it comes. degraded: the store failed, or was late.
    """

    def __init__(self, session: Session, *, streamed: bool) -> None:
        self.degraded = False
        self._session = session
        self._streamed = streamed
        self._task: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, *, at_once: bool = False) -> None:
        """Begin to write the request.

        A whole answer that comes within moments is written in the same transaction, unless the
        write is needed at once.
        """
        if self._task is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._streamed or at_once or not self._session.can_defer_opening:
            self._task = asyncio.ensure_future(self._open())
        else:
            self._timer = asyncio.get_running_loop().call_later(
                TOGETHER_SECONDS, partial(self.begin, at_once=True)
            )

    async def wait(self, patience: float) -> bool:
        """Tell whether the store has taken the request, or takes it within `patience` seconds.

        The answer waits no longer: it is then marked `degraded`, and the store is tried until the
        turn ends.
        """
        if self._timer is not None:
            self._timer.cancel()
        if (task := self._task) is None:
            return True
        if not task.done():
            await self._session.wait_for_opening(task, patience)
        if task.done():
            if not task.cancelled():
                task.result()
            return True
        self.degraded = True
        return False

    async def finish(self) -> None:
        """Wait until the write has succeeded or was undone.

        Gives up on a store that does not answer.
        """
        if self._task is None:
            if self._timer is not None:
                self._timer.cancel()
            return
        if not await self.wait(STORE_SECONDS) and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _open(self) -> None:
        try:
            await self._session.open()
        except (StoreUnavailable, ErasedMeanwhile):
            self.degraded = True
