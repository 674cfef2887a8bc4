"""Writes what the recovery log kept, once the store takes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import sleep

from sqlalchemy import Connection

from memory.errors import ErasedMeanwhile, RowRefused, StoreUnavailable
from memory.session.recovery_log import RecoveryLog
from memory.stores.sql import turn_writer
from memory.stores.sql.application_tables import keep_beside
from memory.stores.sql.database import Database
from memory.stores.sql.turn_rows import TurnRecord
from memory.stores.sql.write_lock import owner_lock

log = logging.getLogger("mnemogate")
FOLLOW_SECONDS = 1.0  # between looks for records, where the store may be back at any time
SET_ASIDE = "a record of the recovery log cannot be replayed: it is set aside in spill.bad"


class Replay:
    """Replays the records of a recovery log."""

    def __init__(self, db: Database, spill: RecoveryLog) -> None:
        self._db, self._spill = db, spill

    async def run(self) -> None:
        """Write all records, in order. Raises StoreUnavailable; then they stay."""
        for record in await asyncio.to_thread(self._spill.load):
            await self._write(record)
        await asyncio.to_thread(self._spill.clear)

    async def follow(self) -> None:
        """Write records whenever there are some and the store takes them."""
        while True:
            await sleep(FOLLOW_SECONDS)
            if self._db.may_write and not self._spill.is_empty:
                with contextlib.suppress(StoreUnavailable, OSError):
                    await self.run()

    async def _write(self, record: TurnRecord) -> None:
        def work(conn: Connection) -> None:
            turn_writer.record(conn, record)
            keep_beside(conn, self._db.application_tables, record.beside)

        scope = record.owner.scope
        try:
            lock = owner_lock(scope.tenant, scope.user, record.conversation)
            await self._db.write(work, lock=lock)
        except RowRefused as e:
            # Without the traceback: what a database says may quote the row.
            log.error("%s: %s", SET_ASIDE, e)  # noqa: TRY400
            self._spill.set_aside(record)
        except StoreUnavailable:
            raise
        except ErasedMeanwhile:
            log.info("a record of the recovery log is dropped: its user or conversation is erased")
        except Exception:
            # Kept in the log, it would hold up all later records.
            log.exception(SET_ASIDE)
            self._spill.set_aside(record)
