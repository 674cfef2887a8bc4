"""The port of tables that an application keeps in this database beside the memory's own."""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import Connection


class ApplicationTables(Protocol):
    """Tables of the application, which knows what a user and age mean in them.

    It registers them with the database. Each method runs inside the caller's write transaction.
    counted: what an erasure's receipt calls the rows it removed, "" where rows stay.
    """

    counted: str

    def forget_batch(self, conn: Connection, tenant: str, user: str, most: int) -> int:
        """Take a user out of at most so many rows, before an erasure is irrevocable.

        Returns of how many; it is called again until that is 0.
        """
        ...

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Take a user out of what is left, in the transaction that makes it irrevocable."""
        ...

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of what is too old.

        Returns how many; it is called again until that is 0.
        """
        ...
