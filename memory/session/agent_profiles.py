"""The profiles of agents as a turn looks them up."""

from __future__ import annotations

from functools import partial
from sys import getsizeof

from sqlalchemy import Connection

from memory.cache import Cache
from memory.session.followed_rows import READ_SECONDS, FollowedRows
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import agents as rows
from memory.stores.sql.rows.agents import StoredAgent

CACHE_BYTES = 4 << 20
CACHE_EACH = 300
# Tenant, and name or id.
Name = tuple[str, str]


class AgentProfiles(FollowedRows[Name, tuple[StoredAgent | None]]):
    """The profiles that tenants made. While nobody made one, no request reads anything.

    Of a database that several workers share, a profile is read in each turn that names it: an edit
    that one of them acknowledged counts for all that begins after it.
    """

    def __init__(self, db: Database) -> None:
        cache: Cache[Name, tuple[StoredAgent | None]] = Cache(CACHE_BYTES, CACHE_EACH, _size)
        super().__init__(db, rows.any_made, rows.changes(), cache)

    async def find(
        self, tenant: str, name: str, deadline: float = READ_SECONDS, *, certain: bool = True
    ) -> StoredAgent | None:
        """Return the profile of a name or an id. Raises StoreUnavailable.

        deadline: seconds that a read may take. certain: the very first profile that another worker
        made counts at once, not within a second.
        """
        if self._has_rows is None:
            await self.load(deadline)
        if self._has_rows is False and not (self._db.is_shared and certain):
            return None
        key = tenant, name
        if not self._db.is_shared and (cached_profile := self._cache.get(key)) is not None:
            return cached_profile[0]
        return (await self._read(key, partial(_find, name=key), deadline))[0]


def _find(conn: Connection, name: Name) -> tuple[StoredAgent | None]:
    return (rows.find(conn, *name),)


def _size(key: Name, rows_read: tuple[StoredAgent | None]) -> int:
    return sum(map(getsizeof, key)) + (
        getsizeof(rows_read[0].profile) if rows_read[0] is not None else 0
    )
