"""This process's place among the workers of a Postgres database, by the database's clock.

Each worker has a row with a slot, which is in the keys of the rows that it makes, and renews it.
Who did not renew it for `HOLD_SECONDS` writes nothing any more. After `LEASE_SECONDS` others take
its open turns over, one by one, and its sessions are ended: a process that stands still in the
middle of a transaction holds its locks, and no limit of the server ends a statement whose
parameters it waits for. Its slot is leased anew after `REUSE_SECONDS`, when no key that it may
still make is a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from memory.errors import StoreUnavailable
from memory.ids import SLOTS, clock, row_keys
from memory.stores.sql.engine.postgres.postgres_hosts import connect
from memory.stores.sql.engine.postgres.postgres_statements import driver_arguments
from memory.stores.sql.engine.release import installed_version
from memory.stores.sql.engine.waiting import ends_within

log = logging.getLogger("mnemogate")
# Between renewals, and while it is not held.
BEAT_SECONDS, RETRY_SECONDS = 5.0, 1.0
HOLD_SECONDS = 10.0
LEASE_SECONDS = 15.0
REUSE_SECONDS = 3600.0
# For one renewal.
ANSWER_SECONDS = 3.0
# That requests wait for the renewal of a lease that was forgotten.
CATCH_UP_SECONDS = 0.5
# A clock that is further off is reported.
SKEWED_SECONDS = 5.0
DATABASE_TIME = "extract(epoch FROM clock_timestamp())::float8"
# Others that ended, as far as can be seen from here, hold nothing any more.
OTHERS_HERE = "SELECT incarnation, pid FROM workers WHERE place = $1 AND incarnation <> $2"
REMOVE = "DELETE FROM workers WHERE incarnation = ANY($1::bigint[])"
REGISTER_LOCK = "SELECT pg_advisory_xact_lock(7205602)"
OUTDATED = f"DELETE FROM workers WHERE seen_at < {DATABASE_TIME} - {REUSE_SECONDS}"
REGISTER = f"""
INSERT INTO workers (slot, incarnation, name, pid, place, version, seen_at)
SELECT s, $1, $2, $3, $4, $5, {DATABASE_TIME} FROM generate_series(0, {SLOTS - 1}) AS s
WHERE NOT EXISTS (SELECT 1 FROM workers w WHERE w.slot = s) ORDER BY s LIMIT 1
ON CONFLICT DO NOTHING RETURNING slot, seen_at"""
RENEW = f"""
UPDATE workers SET seen_at = {DATABASE_TIME} WHERE slot = $1 AND incarnation = $2
RETURNING seen_at"""
SILENT = f"""
SELECT incarnation FROM workers WHERE incarnation <> $1
  AND seen_at < {DATABASE_TIME} - {LEASE_SECONDS}
  AND seen_at > {DATABASE_TIME} - 10 * {LEASE_SECONDS}"""
LIVING = f"SELECT count(*) FROM workers WHERE seen_at > {DATABASE_TIME} - {LEASE_SECONDS}"
RELEASE = "DELETE FROM workers WHERE slot = $1 AND incarnation = $2"
END_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = ANY($1::text[]) AND datname = current_database()
  AND usename = current_user"""
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class SlotLease:
    """This process's slot of a database.

    incarnation: names this process. slot: None until it was leased. living: how many workers the
    database had at the last renewal.
    """

    def __init__(self, url: str, incarnation: int = 0) -> None:
        self._url = url
        self.incarnation = incarnation or new_incarnation()
        self.slot: int | None = None
        self.living = 1
        # By this process's clock, before the database was asked.
        self._renewed_at = -HOLD_SECONDS
        self._connection: asyncpg.Connection | None = None
        self._renewing: asyncio.Task[None] | None = None
        # The last renewal.
        self._has_failed = False
        self._on_beat: Callable[[bool], None] = lambda is_lost: None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        return time.monotonic() - self._renewed_at < HOLD_SECONDS

    @property
    def is_renewed(self) -> bool:
        """Whether the last renewal succeeded."""
        return time.monotonic() - self._renewed_at < BEAT_SECONDS

    async def take(self) -> None:
        """Register this worker. Raises StoreUnavailable."""
        await self.renew()
        if abs(clock.ahead) > SKEWED_SECONDS:
            log.warning(
                "this machine's clock is %+.0f s off the database's, whose time is stored",
                -clock.ahead,
            )

    def keep(self, on_beat: Callable[[bool], None]) -> None:
        """Renew it periodically from now on.

        on_beat: called after each successful renewal, with whether the lease had been lost.
        """
        self._on_beat = on_beat
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="slot-lease")

    async def release(self) -> None:
        """Give up the lease, so that others need not wait to take over this worker's turns."""
        for task in (self._beating, self._renewing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._beating = self._renewing = None
        if self.is_held and self.slot is not None:
            slot = self.slot
            with contextlib.suppress(StoreUnavailable):
                await self._ask(
                    lambda raw_connection: raw_connection.execute(RELEASE, slot, self.incarnation)
                )
        self._renewed_at = -HOLD_SECONDS
        self._use_slot(None)
        await self._disconnect()

    async def catch_up(self) -> bool:
        """Tell whether the lease is held; renew it first if this process stood still meanwhile.

        So a process that was stopped serves its first requests with memory. After a renewal that
        failed, nobody waits for the next one.
        """
        if not self.is_held and not self._has_failed and self._beating is not None:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self.renew()
        return self.is_held

    async def renew(self) -> None:
        """Renew the lease, or lease a slot; who comes meanwhile waits for the same renewal.

        Raises StoreUnavailable.
        """
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name="slot-renewal")
            self._renewing.add_done_callback(lambda t: t.cancelled() or t.exception())
        await asyncio.shield(self._renewing)

    async def _renew(self) -> None:
        began = time.monotonic()
        wall = time.time()
        was_held = self.is_held
        try:
            server_time = await self._ask(self._renew_over)
        except StoreUnavailable:
            self._has_failed = True
            raise
        self._has_failed = False
        self._renewed_at = began
        clock.compare(wall, server_time)
        self._on_beat(not was_held)

    async def _renew_over(self, raw_connection: asyncpg.Connection) -> float:
        if self.slot is not None:
            server_time = await raw_connection.fetchval(RENEW, self.slot, self.incarnation)
            if server_time is None:
                # Silent for so long that another has it.
                self._use_slot(None)
        if self.slot is None:
            server_time = await self._register(raw_connection)
        await _end_sessions(
            raw_connection, [row[0] for row in await raw_connection.fetch(SILENT, self.incarnation)]
        )
        self.living = int(await raw_connection.fetchval(LIVING))
        return float(server_time)

    async def _register(self, raw_connection: asyncpg.Connection) -> float:
        async with raw_connection.transaction():
            await raw_connection.execute(REGISTER_LOCK)
            await raw_connection.execute(OUTDATED)
            await self._remove_dead(raw_connection)
            name = f"{socket.gethostname()}/{os.getpid()}"
            place = process_place()
            registration = (self.incarnation, name, os.getpid(), place, installed_version())
            row = await raw_connection.fetchrow(REGISTER, *registration)
        if row is None:
            raise OSError(f"all {SLOTS} slots of workers are taken")
        self._use_slot(row[0])
        return float(row[1])

    async def _remove_dead(self, raw_connection: asyncpg.Connection) -> None:
        """Free the slots of processes of this machine that have ended."""
        if place := process_place():
            other_workers = await raw_connection.fetch(OTHERS_HERE, place, self.incarnation)
            if dead_workers := [worker for worker, pid in other_workers if _has_ended(pid)]:
                await raw_connection.execute(REMOVE, dead_workers)
                await _end_sessions(raw_connection, dead_workers)

    def _use_slot(self, slot: int | None) -> None:
        if self.slot is not None:
            row_keys.release(self.slot)
        self.slot = slot
        if slot is not None:
            row_keys.lease(slot)

    async def _ask(self, work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
        """Ask the database on this lease's own connection. Raises StoreUnavailable."""
        asking = asyncio.ensure_future(self._ask_over_own(work))
        try:
            if not await ends_within(asking, ANSWER_SECONDS):
                raise TimeoutError(f"no answer within {ANSWER_SECONDS:g} s")
            return asking.result()
        except FAILURES as e:
            await self._disconnect()
            raise StoreUnavailable(f"the lease cannot be renewed: {type(e).__name__}: {e}") from e
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.wait([asking])
                asking.cancelled() or asking.exception()

    async def _ask_over_own(self, work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(**driver_arguments(self._url))
        return await work(self._connection)

    async def _disconnect(self) -> None:
        raw_connection = self._connection
        self._connection = None
        if raw_connection is not None:
            raw_connection.terminate()

    async def _beat(self) -> None:
        is_held = True
        while True:
            await asyncio.sleep(BEAT_SECONDS if is_held and self.is_renewed else RETRY_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self.renew()
            if is_held and not self.is_held:
                log.error(
                    "this worker has lost its lease of the database, which does not answer. "
                    "Requests continue without memory until it does"
                )
            elif not is_held and self.is_held:
                log.warning("this worker serves its database again")
            is_held = self.is_held


def new_incarnation() -> int:
    """Return a name for this process that is unique among all that served a database."""
    return secrets.randbits(63)


def session_name(incarnation: int) -> str:
    """Return the name by which the server knows the connections of a worker."""
    return f"mnemogate {incarnation:x}"


async def _end_sessions(raw_connection: asyncpg.Connection, incarnations: Sequence[int]) -> None:
    if incarnations:
        await raw_connection.execute(
            END_SESSIONS, [session_name(incarnation) for incarnation in incarnations]
        )


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def process_place() -> str:
    """Return what distinguishes process ids of this machine or container; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
