"""Responses in the background whose cost is not known yet, for whoever starts next.

They are rows of `meta`, written in the transaction of the response's own row, so that a booking
outlives the process that took the request, and an erasure of its user: no row names one. A value
begins with the time of the next look, in digits that sort as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, update

from gateway.storage.tickets import to_digits
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.statements import put_row
from memory.stores.sql.engine.write_lock import NOTHING

READ_SECONDS = 2.0
# The member of a row's echo, and the first word of a name.
BOOKING = "booking"
MEMBERS = ("tenant", "id", "rounds", "target", "model", "created_at")
PAGE = 500
# Of this process, whose rows the store may not have taken yet.
MOST_EXPECTED = 1000
# Tenants.
MOST_WAITING = 10_000
m = t.meta.c


@dataclass(frozen=True, slots=True)
class PendingBooking:
    """One row. value: as stored. due: Unix time of the next look. response: `MEMBERS`, `echo`."""

    name: str
    value: str
    due: float
    response: Mapping[str, Any]


def note_booking(conn: Connection, response: Mapping[str, Any], booking: object) -> None:
    """Write a row for a response, due at once. booking: what its row says of its usage record."""
    row = {name: response[name] for name in MEMBERS} | {"echo": {BOOKING: booking}}
    value = f"{to_digits(response['created_at'])} {msgspec.json.encode(row).decode()}"
    name = _row_name(response["tenant"], response["id"])
    put_row(conn, t.meta, ("name",), name=name, value=value)


class PendingBookings:
    """The rows of a database, and what wakes the task that works on them.

    tenants_without_key: tenants whose credential is missing. change_event: there is something new
    to look at.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.tenants_without_key: set[str] = set()
        self.change_event = asyncio.Event()
        self._expected_names: set[str] = set()

    @property
    def are_expected(self) -> bool:
        """Whether there is a response of this process that no look has seen yet."""
        return bool(self._expected_names)

    def expect(self, tenant: str, response: str) -> None:
        """Take note of a response whose row is written, or will be."""
        if len(self._expected_names) < MOST_EXPECTED:
            self._expected_names.add(_row_name(tenant, response))
        self.change_event.set()

    def wait_for(self, tenant: str) -> None:
        """Take note of a tenant whose next request brings the credential."""
        if len(self.tenants_without_key) < MOST_WAITING:
            self.tenants_without_key.add(tenant)

    def resume(self, tenant: str) -> None:
        """Look again at what waits for a tenant's credential."""
        self.tenants_without_key.discard(tenant)
        self.change_event.set()

    async def read_page(self, after: str) -> list[PendingBooking]:
        """Return the next rows by name. Raises StoreUnavailable."""
        begins = m.name.startswith(f"{BOOKING} "), m.name > after
        query = select(m.name, m.value).where(*begins).order_by(m.name).limit(PAGE)
        rows = await self._db.read(
            lambda conn: list(_read_rows(conn.execute(query).all())), READ_SECONDS
        )
        self._expected_names.difference_update(row.name for row in rows)
        return rows

    async def claim(self, row: PendingBooking, due: float) -> bool:
        """Set the time of the next look; False if another process did so.

        Raises StoreUnavailable.
        """
        unchanged = (m.name == row.name) & (m.value == row.value)
        value = f"{to_digits(due)} {row.value.partition(' ')[2]}"
        query = update(t.meta).where(unchanged).values(value=value)
        changed_rows: int = await self._db.write(
            lambda conn: conn.execute(query).rowcount, lock=NOTHING
        )
        return changed_rows > 0

    async def remove(self, tenant: str, response: str) -> None:
        """Remove the row of a response, if there is one. Raises StoreUnavailable."""
        name = _row_name(tenant, response)
        self._expected_names.discard(name)
        query = delete(t.meta).where(m.name == name)
        await self._db.write(lambda conn: conn.execute(query), small=True, lock=NOTHING)


def _read_rows(rows: Iterable[Any]) -> Iterator[PendingBooking]:
    for name, value in rows:
        due, _, text = value.partition(" ")
        yield PendingBooking(name, value, float(due), msgspec.json.decode(text))


def _row_name(tenant: str, response: str) -> str:
    owner = f"{tenant}\x00{response}".encode("utf-8", "surrogatepass")
    return f"{BOOKING} {blake2b(owner, digest_size=20).hexdigest()}"
