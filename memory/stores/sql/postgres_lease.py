"""The lease of the one gateway that serves a Postgres database, kept by the database's clock.

Until several can share one database, a second would take turns over that the first still runs. A
lease is a row that its holder renews. Who did not renew it for `HOLD_SECONDS` writes nothing any
more; after `LEASE_SECONDS` another one may take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from memory.errors import StoreUnavailable
from memory.stores.sql.postgres_statements import driver_arguments

log = logging.getLogger("mnemogate")
BEAT_SECONDS, RETRY_SECONDS = 5.0, 1.0  # between renewals, and while it is not held
HOLD_SECONDS, LEASE_SECONDS = 10.0, 15.0
ANSWER_SECONDS = 3.0  # for one renewal
OVERDUE_SECONDS = 7.0  # who did not renew for so long has probably ended
CLAIM = f"""
WITH before AS (SELECT value FROM meta WHERE name = 'gateway')
INSERT INTO meta (name, value) VALUES ('gateway', (CAST($1 AS jsonb)
  || jsonb_build_object('seen', extract(epoch FROM clock_timestamp())))::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE meta.value::jsonb->>'incarnation' = $2
   OR (meta.value::jsonb->>'seen')::float8 < extract(epoch FROM clock_timestamp()) - {LEASE_SECONDS}
RETURNING (SELECT value FROM before)"""
# A process that stands still in the middle of a transaction holds its locks: no limit of the server
# ends a statement whose parameters it waits for.
END_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = $1 AND datname = current_database() AND usename = current_user"""
HOLDER = """
SELECT value, (extract(epoch FROM clock_timestamp()) - (value::jsonb->>'seen')::float8)::float8
FROM meta WHERE name = 'gateway'"""
RELEASE = "DELETE FROM meta WHERE name = 'gateway' AND value::jsonb->>'incarnation' = $1"
REMOVE = "DELETE FROM meta WHERE name = 'gateway' AND value = $1"
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Another gateway that serves the database.

    place: where its process id counts. age: seconds since it renewed its lease. row: as stored.
    """

    host: str
    pid: int
    place: str
    age: float
    row: str

    def __str__(self) -> str:
        return f"host {self.host}, process {self.pid}, seen {max(0.0, self.age):.0f} s ago"

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended, where that can be seen from here."""
        if not self.place or self.place != process_place():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


class PostgresLease:
    """This gateway's lease of a database.

    incarnation: names this gateway. holder: who has it in its place, as far as is known.
    """

    def __init__(self, url: str, incarnation: str = "") -> None:
        self._url = url
        self._incarnation = incarnation or secrets.token_hex(8)
        self._renewed_at = -HOLD_SECONDS  # by this process's clock, before the database was asked
        self._raw: asyncpg.Connection | None = None
        self._beating: asyncio.Task[None] | None = None
        self.holder: LeaseHolder | None = None

    @property
    def is_held(self) -> bool:
        return time.monotonic() - self._renewed_at < HOLD_SECONDS

    @property
    def is_renewed(self) -> bool:
        """Whether the last renewal succeeded."""
        return time.monotonic() - self._renewed_at < BEAT_SECONDS

    def claim_at_start(self) -> LeaseHolder | None:
        """Claim it before there is an event loop; return who has it instead.

        One that is overdue is waited for. A database that cannot be asked is claimed later.
        """
        found: list[LeaseHolder | None] = []

        async def claim() -> None:
            with contextlib.suppress(StoreUnavailable):
                found.append(await self._claim_patiently())
            await self._disconnect()

        thread = threading.Thread(target=lambda: asyncio.run(claim()), name="postgres-lease")
        thread.start()
        thread.join()
        return found[0] if found else None

    async def take(self) -> None:
        """Claim it. Raises StoreUnavailable if another gateway has it."""
        if (other := await self._claim_patiently()) is not None:
            raise StoreUnavailable(f"another gateway serves this database ({other})")

    def keep(self, on_regained: Callable[[], None]) -> None:
        """Renew it from now on. on_regained: called when it was lost and is held again."""
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(on_regained), name="postgres-lease")

    async def release(self) -> None:
        """Give it up, so that the next gateway need not wait."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None
        if self.is_held:
            with contextlib.suppress(StoreUnavailable):
                await self._ask(lambda raw: raw.execute(RELEASE, self._incarnation))
        self._renewed_at = -HOLD_SECONDS
        await self._disconnect()

    async def _claim_patiently(self) -> LeaseHolder | None:
        until = time.monotonic() + LEASE_SECONDS
        while (other := await self._claim()) is not None:
            if other.age < OVERDUE_SECONDS or time.monotonic() > until:
                return other
            await asyncio.sleep(RETRY_SECONDS / 2)
        return None

    async def _claim(self) -> LeaseHolder | None:
        """Claim or renew it; return who has it instead. Raises StoreUnavailable."""
        began = time.monotonic()
        self.holder = await self._ask(self._claim_over)
        if self.holder is None:
            self._renewed_at = began
        return self.holder

    async def _claim_over(self, raw: asyncpg.Connection) -> LeaseHolder | None:
        row = {
            "incarnation": self._incarnation,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "place": process_place(),
        }
        mine = msgspec.json.encode(row).decode()
        while (taken := await raw.fetchrow(CLAIM, mine, self._incarnation)) is None:
            if (found := await raw.fetchrow(HOLDER)) is None:
                continue  # released meanwhile
            told = msgspec.json.decode(found[0])
            other = LeaseHolder(told["host"], told["pid"], told["place"], found[1], found[0])
            if not other.is_dead:
                return other
            await raw.execute(REMOVE, other.row)
        before = msgspec.json.decode(taken[0])["incarnation"] if taken[0] else self._incarnation
        if before != self._incarnation:
            await raw.execute(END_SESSIONS, session_name(before))
        return None

    async def _ask(self, work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> Any:
        """Ask the database on this lease's own connection. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._raw is None or self._raw.is_closed():
                    self._raw = await asyncpg.connect(**driver_arguments(self._url))
                return await work(self._raw)
        except asyncpg.UndefinedTableError:
            return None  # a new database, which nobody serves
        except FAILURES as e:
            await self._disconnect()
            raise StoreUnavailable(f"the lease cannot be renewed: {type(e).__name__}") from e

    async def _disconnect(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.terminate()

    async def _beat(self, on_regained: Callable[[], None]) -> None:
        held = True
        while True:
            await asyncio.sleep(BEAT_SECONDS if held and self.is_renewed else RETRY_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self._claim()
            if held and not self.is_held:
                _log_loss(self.holder)
            elif not held and self.is_held:
                on_regained()
                log.warning("this gateway serves its database again")
            held = self.is_held


def session_name(incarnation: str) -> str:
    """Return the name by which the server knows the connections of a gateway."""
    return f"mnemogate {incarnation}"


def _log_loss(holder: LeaseHolder | None) -> None:
    why = f"another gateway serves it ({holder})" if holder else "it does not answer"
    log.error(
        "this gateway has lost its lease of the database: %s. Requests go on without memory until "
        "the lease is free",
        why,
    )


def process_place() -> str:
    """Return what tells process ids of this machine or container from others'; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
