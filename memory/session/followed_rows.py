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
        find_any: Callable[[Connection], bool],
        changes: Query,
        cache: Cache[K, V],
    ) -> None:
        self._db = db
        self._find_any = find_any
        self._query = changes
        self._cache = cache
        # None: not known yet.
        self._has_rows: bool | None = None
        self._changes = 0

    @property
    def loaded(self) -> bool:
        """Whether it is known if there are any."""
        return self._has_rows is not None

    @property
    def is_unused(self) -> bool:
        """Whether it is known that there are none."""
        return self._has_rows is False

    async def load(self, deadline: float = READ_SECONDS) -> None:
        """Learn whether there are any, within so many seconds. Raises StoreUnavailable."""
        changes = self._changes
        has_rows = await self._db.read(self._find_any, deadline)
        if changes == self._changes:
            self._has_rows = has_rows
        else:
            self._has_rows = None

    async def follow(self) -> None:
        """Forget what other workers change, once a second."""
        changes_seen = None
        while True:
            with contextlib.suppress(StoreUnavailable):
                if (changes := await self._db.read(self._query, single=True)) != changes_seen:
                    changes_seen = changes
                    self.forget()
                    # Else the next request has to.
                    await self.load()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _read(self, key: K, work: Callable[[Connection], V], deadline: float) -> V:
        """Read what a key stands for, and cache it. Raises StoreUnavailable."""
        changes = self._changes
        rows = await self._db.read(work, deadline, small=True, of=NO_TURNS)
        # Otherwise it may be an older one.
        if changes == self._changes:
            self._cache.put(key, rows)
        return rows

    def forget(self) -> None:
        """Read every row anew: some were written."""
        self._has_rows = None
        self._changes += 1
        self._cache.clear()
