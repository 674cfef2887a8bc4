"""Recorded messages on their way into the search index: while nobody is being answered, and a
scope's own at once before it is searched.

To index a message costs more than all else that its turn writes, and few are ever searched for. A
message is durable with its turn, and how far the index has come is stored with the index; so none
is lost, and a search finds what was said a moment ago. A defect stops neither: it is logged,
without what anybody said, and tried again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Collection

from memory.errors import StoreUnavailable
from memory.stores.sql import message_index as rows
from memory.stores.sql.database import Database

log = logging.getLogger("mnemogate")
BATCH, PAUSE_SECONDS = (
    16,
    0.1,
)  # messages a write, seconds between writes: a fiftieth of one core at most
GATHER = 1.0  # seconds between looks whether turns are under way, and without one before it begins
LOOKS = 60  # after so many they put it off no longer
MAX_PAUSE_SECONDS = 300.0  # seconds of the pause after a defect, which doubles each time
SEARCH_BATCH, SEARCH_SECONDS = 32, 4.0  # before a search
STUCK_SECONDS, REST_SECONDS = (
    0.2,
    5.0,
)  # that a search waits for one batch, and without waiting once one was late
SMALL_TEXT_BYTES = (
    1 << 16
)  # characters that are indexed at once, on the event loop's thread; what is more has the writer's


class Indexer:
    """One a memory. The index behind the database `db`. busy: the open nodes of turns under way."""

    def __init__(self, db: Database, busy: Collection[int] = ()) -> None:
        self._db, self._busy = db, busy
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._latest = 0.0  # when a turn was recorded
        self._rests_until = (
            0.0  # a store that did not take a batch in time is not waited for again till then
        )

    def start(self) -> None:
        if self._task is None:
            self._some.set()  # what an earlier process left
            self._task = asyncio.create_task(self._work_on(), name="memory-indexing")

    def notify_added(self) -> None:
        """Tell that messages were recorded."""
        self._latest = time.monotonic()
        self._some.set()

    async def ensure_indexed(self, scope_id: int) -> None:
        """Put what waits of a scope into the index, newest first, for some seconds at most.

        A store that is busy for long, or a defect, leaves a search with what is there.
        """
        if time.monotonic() < self._rests_until:
            return
        try:
            if not await self._db.read(lambda conn: rows.index_waits(conn, scope_id)):
                return
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._batches(scope_id)
        except (StoreUnavailable, TimeoutError):
            pass
        except Exception as e:
            log.warning("a search goes on without what was said last: %s", _describe_defect(e))

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _batches(self, scope_id: int | None = None) -> None:
        """Indexes until nothing waits, of one scope or of all; requests go on meanwhile."""
        more = True
        while more:
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    more = await self._batch(SEARCH_BATCH, scope_id)
            except TimeoutError as e:
                self._rests_until = time.monotonic() + REST_SECONDS
                raise StoreUnavailable("the store takes nothing into the index now") from e
            await asyncio.sleep(0)

    async def _batch(self, most: int, scope_id: int | None = None) -> bool:
        """Indexes the next messages: a long one alone. Returns whether more may wait."""
        size = await self._db.read(lambda conn: rows.waiting_size(conn, most, scope_id))
        if size > SMALL_TEXT_BYTES:
            return (
                await self._db.write(lambda conn: rows.index_pending(conn, 1, scope_id), piece=True)
                > 0
            )
        return (
            await self._db.write(lambda conn: rows.index_pending(conn, most, scope_id), small=True)
            == most
        )

    async def _work_on(self) -> None:
        pause = GATHER
        while True:
            await self._some.wait()
            self._some.clear()
            patience, more = LOOKS, True
            while more:
                patience = await self._quiet(patience)
                try:
                    more = await self._batch(BATCH)
                    pause = GATHER
                except StoreUnavailable:
                    await asyncio.sleep(GATHER)
                except Exception as e:
                    log.warning(
                        "the search index is not brought up to date for %.0f s: %s",
                        pause,
                        _describe_defect(e),
                    )
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _quiet(self, patience: int) -> int:
        """Wait until no turn is under way and none ended a moment ago, for `patience` looks at
        most. Returns the looks that are left for the next batch: turns that leave no such moment
        put it off no longer, until nothing waits.
        """
        await asyncio.sleep(PAUSE_SECONDS)
        while self._busy or time.monotonic() - self._latest < GATHER:
            if patience <= 0:
                return 0
            await asyncio.sleep(GATHER)
            patience -= 1
        return LOOKS


def _describe_defect(error: Exception) -> str:
    """Return what a defect is and where, without its own words: they may be a user's."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.name}, line {where.lineno}"
