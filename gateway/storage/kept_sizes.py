"""How many bytes of responses and conversations each user has here.

A sum reads all their rows, so it is taken at most once a minute; what this process writes meanwhile
is added to it.
"""

from __future__ import annotations

import time

from sqlalchemy import func, select

from gateway.storage.responses import READ_SECONDS, SIZE
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database

FRESH_SECONDS = 60.0
# That are remembered.
MOST_SUMS = 500
c = t.responses.c
# Tenant, user or conversation, and which of the two.
Place = tuple[str, str, str]


class KeptSizes:
    """Sums of bytes, by user and by conversation."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._sums: dict[Place, tuple[int, float]] = {}

    async def of_user(self, tenant: str, user: str | None) -> int:
        """Return the bytes of a user, of nobody for None. Raises StoreUnavailable."""
        is_users = c.user.is_(None) if user is None else c.user == user
        return await self._sum((tenant, user or "", "user"), is_users)

    async def of_conversation(self, tenant: str, name: str) -> int:
        """Return the bytes of a conversation. Raises StoreUnavailable."""
        return await self._sum((tenant, name, "conversation"), c.thread == name)

    def add(self, tenant: str, user: str | None, name: str, size: int) -> None:
        """Take note of bytes that are written. name: their conversation, "" for none."""
        for place in ((tenant, user or "", "user"), (tenant, name, "conversation")):
            if (cached_sum := self._sums.get(place)) is not None:
                self._sums[place] = cached_sum[0] + size, cached_sum[1]

    def forget(self, tenant: str, user: str | None, name: str) -> None:
        """Take the sums anew: something was removed."""
        for place in ((tenant, user or "", "user"), (tenant, name, "conversation")):
            self._sums.pop(place, None)

    async def _sum(self, place: Place, condition: object) -> int:
        cached_sum = self._sums.get(place)
        if cached_sum is not None and time.monotonic() - cached_sum[1] < FRESH_SECONDS:
            return cached_sum[0]
        query = select(func.sum(SIZE)).where(c.tenant == place[0], condition)  # type: ignore[arg-type]
        stored_size = await self._db.read(lambda conn: conn.execute(query).scalar(), READ_SECONDS)
        size = int(stored_size or 0)
        self._sums.pop(place, None)
        self._sums[place] = size, time.monotonic()
        while len(self._sums) > MOST_SUMS:
            self._sums.pop(next(iter(self._sums)))
        return size
