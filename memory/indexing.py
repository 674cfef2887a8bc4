"""Recorded messages on their way into the search index: while nobody is being answered, and a scope's own at once before it is searched.

To index a message costs more than all else that its turn writes, and few are ever searched for. A message is durable with its turn, and
how far the index has come is stored with the index; so none is lost, and a search finds what was said a moment ago.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from memory.errors import StoreUnavailable
from memory.stores.sql import messages as rows
from memory.stores.sql.engine import Database

BATCH, PAUSE = 16, 0.1  # messages a write, seconds between writes: a fiftieth of one core at most
GATHER = 1.0  # seconds between looks whether turns are under way
LOOKS = 60  # after so many they put it off no longer
SEARCH_BATCH, SEARCH_SECONDS = 32, 4.0  # before a search


class Indexing:
    """One a memory. The index behind the database `db`. busy: the open nodes of turns under way."""

    def __init__(self, db: Database, busy: Collection[int] = ()) -> None:
        self._db, self._busy = db, busy
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._some.set()  # what an earlier process left
            self._task = asyncio.create_task(self._work_on(), name="memory-indexing")

    def added(self) -> None:
        """Tells that messages were recorded."""
        self._some.set()

    async def caught_up(self, scope_id: int) -> None:
        """Puts what waits of a scope into the index, newest first, for some seconds at most. A store that is busy for long leaves a search
        with what is there."""
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            if not await self._db.read(lambda conn: rows.index_waits(conn, scope_id)):
                return
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._batches(SEARCH_BATCH, 0, scope_id)

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _batches(self, size: int, pause: float, scope_id: int | None = None) -> None:
        """Indexes until nothing waits, of one scope or of all; requests go on meanwhile."""
        done = size
        while done == size:
            done = await self._db.write(lambda conn: rows.index_new(conn, size, scope_id), small=True)
            await asyncio.sleep(pause)

    async def _work_on(self) -> None:
        while True:
            await self._some.wait()
            for _ in range(LOOKS):
                await asyncio.sleep(GATHER)
                if not self._busy:
                    break
            self._some.clear()
            try:
                await self._batches(BATCH, PAUSE)
            except StoreUnavailable:
                self._some.set()
