"""Writes what the recovery log kept, once the store takes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import sleep
from functools import partial

from sqlalchemy import Connection

from memory.errors import ErasedMeanwhile, RowRefused, StoreUnavailable
from memory.session.recovery_log import RecoveryLog
from memory.session.speaker_guard import check_speaker_of
from memory.stores.sql.engine.application_tables import keep_beside
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import message_pieces, scopes
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.turn_rows import TurnRecord

log = logging.getLogger("mnemogate")
# Between looks for records, where the store may be back at any time.
FOLLOW_SECONDS = 1.0
SET_ASIDE = "a record of the recovery log cannot be replayed: it is set aside in spill.bad"


class Replay:
    """Replays the records of a recovery log."""

    def __init__(self, db: Database, recovery_log: RecoveryLog) -> None:
        self._db = db
        self._recovery_log = recovery_log

    async def run(self) -> None:
        """Write all records, in order. Raises StoreUnavailable; then they stay."""
        records = iter(self._recovery_log.load())
        while (record := await asyncio.to_thread(next, records, None)) is not None:
            await self._write(record)
            # Before the next one is read: it may be as large.
            del record
        await asyncio.to_thread(self._recovery_log.clear)

    async def follow(self) -> None:
        """Write records whenever there are some and the store takes them."""
        while True:
            await sleep(FOLLOW_SECONDS)
            if self._db.may_write and not self._recovery_log.is_empty:
                with contextlib.suppress(StoreUnavailable, OSError):
                    await self.run()

    async def _write(self, record: TurnRecord) -> None:
        try:
            await self._write_rows(record)
        except RowRefused as e:
            # Without the traceback: what a database says may quote the row.
            log.error("%s: %s", SET_ASIDE, e)  # noqa: TRY400
            await self._set_aside(record)
        except StoreUnavailable:
            raise
        except ErasedMeanwhile:
            log.info("a record of the recovery log is dropped: its user or conversation is erased")
            await self._drop_pieces(record)
        except Exception:
            # Kept in the log, it would hold up all later records.
            log.exception(SET_ASIDE)
            await self._set_aside(record)

    async def _write_rows(self, record: TurnRecord) -> None:
        def work(conn: Connection) -> None:
            check_speaker_of(conn, record)
            turn_writer.record(conn, record)
            keep_beside(conn, self._db.application_tables, record.beside)

        scope = record.owner.scope
        lock = owner_lock(scope.tenant, scope.user, record.conversation)
        if record.large_bodies:
            place = partial(scopes.get_or_create, owner=record.owner)
            await message_pieces.write(self._db, place, record.large_bodies, lock)
        await self._db.write(work, lock=lock)

    async def _set_aside(self, record: TurnRecord) -> None:
        await self._drop_pieces(record)
        await asyncio.to_thread(self._recovery_log.set_aside, record)

    async def _drop_pieces(self, record: TurnRecord) -> None:
        """Take the pieces back whose rows did not follow; those that are left leave by age."""
        if not record.large_bodies:
            return
        keys = [body.key for body in record.large_bodies]
        drop = partial(turn_writer.drop_pieces, owner=record.owner, bodies=keys)
        scope = record.owner.scope
        with contextlib.suppress(StoreUnavailable):
            await self._db.write(drop, lock=owner_lock(scope.tenant, scope.user))
