"""Files the journal: before whoever needs its turns, and once they are worth a transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from memory.errors import StoreUnavailable
from memory.stores.sql.engine.waiting import ends_within
from memory.stores.sql.turns.journal import FILED_TOGETHER, BehindJournal, FilingStep, Journal

log = logging.getLogger("mnemogate")
# How long a turn waits in the journal for others to be filed with: with jobs, and without any.
FILE_SECONDS = 1.0
REST_SECONDS = 60.0


class JournalFiler:
    """Files one journal. write: runs a small work in a transaction."""

    def __init__(
        self, journal: Journal, write: Callable[[BehindJournal[None]], Awaitable[Any]]
    ) -> None:
        self.journal = journal
        self._write = write
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # Called once turns are filed.
        self.on_filed: list[Callable[[], object]] = []
        # For tests: nothing is filed but before whoever needs it.
        self.is_paused = False

    async def file(self, of: bytes | None = None) -> None:
        """File what was appended before this, a few rows each time. Raises StoreUnavailable.

        of: a scope, all if it is None.
        """
        newest_key = self.journal.newest_key
        filed = 0
        while self.journal.waits(of) and filed < newest_key:
            step = FilingStep(self.journal, of)
            await self._write(step)
            filed = step.filed

    async def file_rest(self) -> None:
        """File what a process that ended has left, a few rows each time."""
        is_left = True
        while is_left:
            step = FilingStep(self.journal)
            await self._write(step)
            is_left = step.filed > 0

    async def file_within(self, deadline: float | None, of: bytes | None = None) -> None:
        """File what a read needs. Raises StoreUnavailable, also after `deadline` seconds."""
        task = asyncio.ensure_future(self.file(of))
        if not await ends_within(task, deadline):
            task.add_done_callback(lambda t: t.cancelled() or t.exception())
            raise StoreUnavailable(f"the store did not file turns within {deadline} s")
        task.result()

    async def file_of(
        self, scope: bytes | None, deadline: float | None, but: int | None = None
    ) -> None:
        """File the turns of a scope, see `Journal.waits`; as `file_within`."""
        if self.journal.waits(scope, but):
            await self.file_within(deadline, scope)

    def file_later(self) -> None:
        """File what was appended once there is enough of it, or it is old."""
        if self.is_paused:
            return
        if self.journal.rows >= FILED_TOGETHER:
            self._file_now()
        elif self.journal.urgent:
            self._file_in(FILE_SECONDS)
        elif self._timer is None:
            self._file_in(REST_SECONDS)

    def _file_in(self, seconds: float) -> None:
        """File after so many seconds, unless that is to happen sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() <= loop.time() + seconds:
            return
        self._stop_timer()
        self._timer = loop.call_later(seconds, self._file_now)

    def _file_now(self) -> None:
        self._stop_timer()
        if self.journal.rows and self._task is None:
            self._task = asyncio.create_task(self._file_in_background(), name="memory-filing")

    async def _file_in_background(self) -> None:
        try:
            await self.file()
        except StoreUnavailable as e:
            log.warning("turns wait in the journal: %s", e)
        except Exception as e:
            # A defect must not end the filing of later turns. Its message may quote a row.
            log.warning("turns wait in the journal: %s", type(e).__name__)
        finally:
            self._task = None
            if self.journal.rows and not self.is_paused:
                self._file_in(FILE_SECONDS)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self, seconds: float) -> None:
        """File what waits, for at most so many seconds; the next process files the rest."""
        self.is_paused = True
        self._stop_timer()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
        if self.journal.rows:
            with contextlib.suppress(TimeoutError, StoreUnavailable):
                async with asyncio.timeout(seconds):
                    await self.file()
