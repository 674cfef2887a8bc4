"""The port for tables that an application keeps in this database."""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import Connection


class ApplicationTables(Protocol):
    """Tables of the application, which knows what erasure and expiry mean for them.

    It registers them with the database. Each method runs inside the caller's write transaction.
    counted: what an erasure's receipt calls the rows it removed, "" where rows stay.
    """

    counted: str

    def forget_batch(self, conn: Connection, tenant: str, user: str, most: int) -> int:
        """Remove a user from at most so many rows, before an erasure is irrevocable.

        Returns the number of rows; called again until that is 0.
        """
        ...

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove a user from the remaining rows, in the transaction that makes it irrevocable."""
        ...

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of expired rows and return their number; called again until that is 0."""
        ...
