"""What the memory may do: modes, the strictest of several, and the policies of users."""

from __future__ import annotations

from functools import partial
from sys import getsizeof

import msgspec

from memory.cache import Cache
from memory.errors import StoreUnavailable
from memory.session.followed_rows import READ_SECONDS, FollowedRows
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import policies as rows
from memory.stores.sql.rows.policies import NO_POLICY, StoredPolicy
from memory.stores.sql.rows.scopes import UserName

MODES = ("full", "read", "write", "off")
# Size of the cache: some 1,500 users.
KNOWN_BYTES, KNOWN_EACH = 1 << 19, 200


def strictest(*modes: str) -> str:
    """Return the mode that allows what all of these allow: `read` and `write` together are `off`.

    A mode is one of `MODES`.
    """
    if modes.count("full") == len(modes):
        return "full"
    reads = all(mode in ("full", "read") for mode in modes)
    writes = all(mode in ("full", "write") for mode in modes)
    return ("full" if writes else "read") if reads else ("write" if writes else "off")


def tools_of(policy: StoredPolicy) -> list[str]:
    """Return the patterns of the operator's tools that a user may have."""
    if policy.tools:
        return msgspec.json.decode(policy.tools, type=list[str])
    return ["*"]


class UserPolicies(FollowedRows[UserName, StoredPolicy]):
    """The policies of users. While nobody has one, no request reads anything."""

    def __init__(self, db: Database) -> None:
        cache: Cache[UserName, StoredPolicy] = Cache(
            KNOWN_BYTES, KNOWN_EACH, lambda user, _: sum(map(getsizeof, user))
        )
        super().__init__(db, rows.any_set, rows.changes(), cache)

    async def find(self, user: UserName, deadline: float = READ_SECONDS) -> str:
        """Return what the memory may do for a user, one of `MODES`; see `read`."""
        if self._has_rows is False:
            return rows.FULL
        return (await self.read(user, deadline)).memory

    async def read(self, user: UserName, deadline: float = READ_SECONDS) -> StoredPolicy:
        """Return the policy of a user (tenant, name).

        deadline: seconds that a read may take. Raises StoreUnavailable.
        """
        if self._has_rows is None:
            await self.load(deadline)
        if self._has_rows is False:
            return NO_POLICY
        if (policy := self._cache.get(user)) is None:
            policy = await self._read(user, partial(rows.find, who=user), deadline)
        return policy

    async def zone(self, user: UserName, deadline: float = READ_SECONDS) -> str:
        """Return the time zone of a user's policy, "" for none, or where it cannot be read."""
        if self._has_rows is False:
            return ""
        try:
            return (await self.read(user, deadline)).timezone
        except StoreUnavailable:
            return ""

    async def tools(self, user: UserName, deadline: float = READ_SECONDS) -> tuple[str, ...] | None:
        """Return the patterns of the operator's tools that a user may have, None for all.

        Raises StoreUnavailable.
        """
        if self._has_rows is False:
            return None
        policy = await self.read(user, deadline)
        if policy.tools:
            return tuple(tools_of(policy))
        return None

    async def put(self, user: UserName, edit: rows.PolicyEdit) -> StoredPolicy:
        """Set the policy of a user: it holds for every request that begins afterwards.

        Raises StoreUnavailable.
        """
        write = partial(rows.put, who=user, edit=edit)
        policy = await self._db.write(write, lock=owner_lock(*user))
        self.forget()
        return policy
