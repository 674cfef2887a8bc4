"""The port for tables that an application keeps in this database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from memory.stores.sql.rows.scopes import UserName


class ApplicationTables(Protocol):
    """Tables of the application, which knows what erasure and expiry mean for them.

    It registers them with the database. Each method runs inside the caller's write transaction.
    counted: what an erasure's receipt calls the rows it removed, "" where rows stay.
    """

    counted: str

    def keep(self, conn: Connection, row: dict[str, Any]) -> None:
        """Write what the application keeps of a turn, in the transaction that records it.

        It is plain data, and may come late, from the recovery log.
        """
        ...

    def forget_batch(self, conn: Connection, tenant: str, user: str, max_rows: int) -> int:
        """Remove a user from at most so many rows, before an erasure is irrevocable.

        Returns the number of rows; called again until that is 0.
        """
        ...

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove a user from the remaining rows, in the transaction that makes it irrevocable."""
        ...

    def forget_conversations(
        self, conn: Connection, tenant: str, user: str | None, names: Sequence[str]
    ) -> None:
        """Remove what belongs to conversations, in the transaction that deletes them."""
        ...

    def rename(self, conn: Connection, source: UserName, target: UserName) -> None:
        """Give a user's rows to another name, in the transaction that moves the memory."""
        ...

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of expired rows and return their number; called again until that is 0."""
        ...


def keep_beside(
    conn: Connection, tables: Sequence[ApplicationTables], rows: Mapping[str, dict[str, Any]]
) -> None:
    """Write what an application keeps of a turn. rows: by `counted`."""
    for table in tables:
        if (row := rows.get(table.counted)) is not None:
            table.keep(conn, row)
