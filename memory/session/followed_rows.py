"""Rows that few tenants have, and that other workers may write: whether there are any, and a cache.

While there are none, no request reads anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import Connection

from memory.cache import Cache
from memory.errors import StoreUnavailable
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.statements import Query

K = TypeVar("K")
V = TypeVar("V")
READ_SECONDS = 1.0
FOLLOW_SECONDS = 1.0


class FollowedRows(Generic[K, V]):
    """Rows of one kind. any_made: tells whether there are any. changes: differs after each change.

    cached: what was read of them.
    """

    def __init__(
        self,
        db: Database,
        any_made: Callable[[Connection], bool],
        changes: Query,
        cached: Cache[K, V],
    ) -> None:
        self._db = db
        self._any_made, self._query, self._cached = any_made, changes, cached
        self._any: bool | None = None  # None: not known yet
        self._changes = 0

    @property
    def loaded(self) -> bool:
        """Whether it is known if there are any."""
        return self._any is not None

    @property
    def is_unused(self) -> bool:
        """Whether it is known that there are none."""
        return self._any is False

    async def load(self, deadline: float = READ_SECONDS) -> None:
        """Learn whether there are any, within so many seconds. Raises StoreUnavailable."""
        changes, found = self._changes, await self._db.read(self._any_made, deadline)
        self._any = found if changes == self._changes else None

    async def follow(self) -> None:
        """Forget what other workers change, once a second."""
        seen = None
        while True:
            with contextlib.suppress(StoreUnavailable):
                if (found := await self._db.read(self._query, single=True)) != seen:
                    seen = found
                    self.forget()
                    await self.load()  # else the next request has to
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _read(self, key: K, work: Callable[[Connection], V], deadline: float) -> V:
        """Read what a key stands for, and cache it. Raises StoreUnavailable."""
        changes = self._changes
        found = await self._db.read(work, deadline, small=True, of=NO_TURNS)
        if changes == self._changes:  # otherwise it may be an older one
            self._cached.put(key, found)
        return found

    def forget(self) -> None:
        """Read every row anew: some were written."""
        self._any = None
        self._changes += 1
        self._cached.clear()
