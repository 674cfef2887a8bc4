"""The policies of users from outside: what the memory may do for each, and their time zones."""

from __future__ import annotations

from collections.abc import Sequence

from memory.service import Memory
from memory.session.policies import MODES
from memory.stores.sql.policies import StoredPolicy

__all__ = ["MODES", "StoredPolicy", "find_policy", "put_policy"]


async def find_policy(memory: Memory, tenant: str, user: str) -> StoredPolicy:
    """Return the policy of a user. Raises StoreUnavailable."""
    return await memory.policies.read((tenant, user))


async def put_policy(
    memory: Memory,
    who: tuple[str, str],
    mode: str | None = None,
    timezone: str | None = None,
    layers: Sequence[str] | None = None,
) -> StoredPolicy:
    """Set the policy of a user, and return it: it holds for every request that begins afterwards.

    who: tenant and user. mode: one of `MODES`. timezone: an IANA name, "" for that of the memory.
    layers: the kinds of layers that are read. A member that is None stays as it is. Raises
    StoreUnavailable.
    """
    try:
        return await memory.policies.put(who, mode, timezone, layers)
    finally:
        if layers is not None:
            memory.shared.note(who[0])
