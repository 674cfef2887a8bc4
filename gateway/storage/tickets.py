"""Tickets of the dashboard in the database, where every worker and the next process see them.

They are rows of `meta`, whose name is a digest: whoever reads the database cannot use a ticket. A
value begins with the end of its time, in digits that sort as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, delete, func, insert, select

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import NOTHING

READ_SECONDS = 2.0
PREFIX = "ticket"
m = t.meta.c


class TooManyTickets(Exception):
    """There are as many tickets of a purpose as may be kept."""


class TicketTable:
    """The tickets of a database. wait_until_ready: raises StoreUnavailable while it is away."""

    def __init__(self, db: Database, wait_until_ready: Callable[[], Awaitable[None]]) -> None:
        self._db = db
        self._wait_until_ready = wait_until_ready

    async def store(
        self, key: tuple[str, str], name: str, times: tuple[float, float], max_tickets: int
    ) -> None:
        """Store a ticket, and remove those whose time is over.

        key: purpose and digest. times: now, and when it ends. max_tickets: tickets of a purpose.
        Raises TooManyTickets, StoreUnavailable.
        """
        now, ends = times
        row = {"name": _row_name(*key), "value": f"{to_digits(ends)} {name}"}

        def work(conn: Connection) -> None:
            is_over = m.name.startswith(f"{PREFIX} "), m.value < to_digits(now)
            conn.execute(delete(t.meta).where(*is_over))
            of_purpose = m.name.startswith(f"{PREFIX} {key[0]} ")
            count = select(func.count()).select_from(t.meta).where(of_purpose)
            if (conn.execute(count).scalar() or 0) >= max_tickets:
                raise TooManyTickets
            conn.execute(insert(t.meta).values(row))

        await self._wait_until_ready()
        await self._db.write(work, lock=NOTHING)

    async def find(self, key: tuple[str, str]) -> tuple[str, float] | None:
        """Return the name and the end of a ticket; None if there is none.

        Raises StoreUnavailable.
        """
        query = select(m.value).where(m.name == _row_name(*key))
        await self._wait_until_ready()
        value = await self._db.read(
            lambda conn: conn.execute(query).scalar(), READ_SECONDS, small=True
        )
        if value is None:
            return None
        ends, _, name = str(value).partition(" ")
        return name, float(ends)

    async def remove(self, key: tuple[str, str]) -> bool:
        """Remove a ticket; tell whether it was there, once among all who ask.

        Raises StoreUnavailable.
        """
        query = delete(t.meta).where(m.name == _row_name(*key))
        await self._wait_until_ready()
        removed_rows: int = await self._db.write(
            lambda conn: conn.execute(query).rowcount, lock=NOTHING
        )
        return removed_rows > 0


def _row_name(purpose: str, digest: str) -> str:
    return f"{PREFIX} {purpose} {digest}"


def to_digits(time: float) -> str:
    """Return a Unix time in digits that sort as text."""
    return f"{max(time, 0.0):015.3f}"
