"""The profiles of agents as a turn looks them up."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from sys import getsizeof

from memory.cache import Cache
from memory.errors import StoreUnavailable
from memory.stores.sql import agents as rows
from memory.stores.sql.agents import StoredAgent
from memory.stores.sql.database import NO_TURNS, Database

READ_SECONDS = 1.0
FOLLOW_SECONDS = 1.0
CACHE_BYTES, CACHE_EACH = 4 << 20, 300


class AgentProfiles:
    """The profiles that tenants made. While nobody made one, no request reads anything.

    Of a database that several workers share, a profile is read in each turn that names it: an edit
    that one of them acknowledged counts for all that begins after it.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._any: bool | None = None  # None: not known yet
        self._changes = 0
        # By tenant and name, with those that are none.
        self._read: Cache[tuple[str, str], tuple[StoredAgent | None]] = Cache(
            CACHE_BYTES, CACHE_EACH, _size
        )

    @property
    def loaded(self) -> bool:
        """Whether it is known if there are any."""
        return self._any is not None

    @property
    def is_unused(self) -> bool:
        """Whether it is known that nobody made a profile."""
        return self._any is False

    async def load(self, deadline: float = READ_SECONDS) -> None:
        """Learn whether there are any, within so many seconds. Raises StoreUnavailable."""
        changes, made = self._changes, await self._db.read(rows.any_made, deadline)
        self._any = made if changes == self._changes else None

    async def follow(self) -> None:
        """Notice the first profile that another worker makes, within a second."""
        seen = None
        while True:
            with contextlib.suppress(StoreUnavailable):
                if (found := await self._db.read(rows.changes(), single=True)) != seen:
                    seen = found
                    self.forget()
                    await self.load()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def find(
        self, tenant: str, name: str, deadline: float = READ_SECONDS, *, certain: bool = True
    ) -> StoredAgent | None:
        """Return the profile of a name or an id. Raises StoreUnavailable.

        deadline: seconds that a read may take. certain: the very first profile that another worker
        made counts at once, not within a second.
        """
        if self._any is None:
            await self.load(deadline)
        if self._any is False and not (self._db.is_shared and certain):
            return None
        key = tenant, name
        if not self._db.is_shared and (read := self._read.get(key)) is not None:
            return read[0]
        changes = self._changes
        found = await self._db.read(
            partial(rows.find, tenant=tenant, name=name), deadline, small=True, of=NO_TURNS
        )
        if changes == self._changes:  # otherwise it may be an older one
            self._read.put(key, (found,))
        return found

    def forget(self) -> None:
        """Read every profile anew: some were written."""
        self._any = None
        self._changes += 1
        self._read.clear()


def _size(key: tuple[str, str], read: tuple[StoredAgent | None]) -> int:
    return sum(map(getsizeof, key)) + (getsizeof(read[0].profile) if read[0] is not None else 0)
