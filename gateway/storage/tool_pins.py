"""The definitions of a server's tools that were accepted, and those that it lists now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database

READ_SECONDS = 5.0
# No tool has this name: the row says that the server was reached, also if it listed nothing.
SERVER_NAME = ""
p = t.tool_pins.c


@dataclass(frozen=True, slots=True)
class ToolPin:
    """One tool of a server. accepted, listed: its definition as canonical JSON, None for none."""

    name: str
    accepted_hash: str | None = None
    accepted: str | None = None
    listed_hash: str | None = None
    listed: str | None = None

    @property
    def status(self) -> str:
        """`ready`, `new`, `changed` or `gone`."""
        if self.listed_hash is None:
            return "gone"
        if self.accepted_hash is None:
            return "new"
        if self.accepted_hash == self.listed_hash:
            return "ready"
        return "changed"

    def accept(self) -> ToolPin:
        """Return the pin with what the server lists as accepted."""
        return ToolPin(self.name, self.listed_hash, self.listed, self.listed_hash, self.listed)


class ToolPinTable:
    """The pins of all servers. A server is an entry and a digest of its URL or command."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def load(self, entry: str, server: str) -> dict[str, ToolPin] | None:
        """Return the pins of a server by name, None if it was never reached.

        Raises StoreUnavailable.
        """
        return await self._db.read(lambda conn: _list_pins(conn, entry, server), READ_SECONDS)

    async def save(self, entry: str, server: str, pins: Mapping[str, ToolPin]) -> None:
        """Replace the pins of a server that was reached. Raises StoreUnavailable."""
        rows = list(_rows_of(entry, server, [ToolPin(SERVER_NAME), *pins.values()]))

        def work(conn: Connection) -> None:
            conn.execute(delete(t.tool_pins).where(p.entry == entry, p.server == server))
            conn.execute(insert(t.tool_pins), rows)

        await self._db.write(work)


def _list_pins(conn: Connection, entry: str, server: str) -> dict[str, ToolPin] | None:
    query = select(t.tool_pins).where(p.entry == entry, p.server == server).order_by(p.name)
    rows = conn.execute(query).all()
    if not rows:
        return None
    return {
        row.name: ToolPin(row.name, row.accepted_hash, row.accepted, row.listed_hash, row.listed)
        for row in rows
        if row.name != SERVER_NAME
    }


def _rows_of(entry: str, server: str, pins: Iterable[ToolPin]) -> Iterable[dict[str, Any]]:
    now = clock.now()
    for pin in pins:
        yield {
            "entry": entry,
            "server": server,
            "name": pin.name,
            "accepted_hash": pin.accepted_hash,
            "accepted": pin.accepted,
            "listed_hash": pin.listed_hash,
            "listed": pin.listed,
            "updated_at": now,
        }
