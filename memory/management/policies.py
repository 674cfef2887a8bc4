"""The policies of users from outside: what the memory may do for each, and their time zones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memory.service import Memory
from memory.session.policies import MODES, tools_of
from memory.stores.sql.rows.policies import StoredPolicy

__all__ = ["MODES", "StoredPolicy", "find_policy", "put_policy", "tools_of"]


async def find_policy(memory: Memory, tenant: str, user: str) -> StoredPolicy:
    """Return the policy of a user. Raises StoreUnavailable."""
    return await memory.policies.read((tenant, user))


async def put_policy(
    memory: Memory,
    who: tuple[str, str],
    mode: str | None = None,
    timezone: str | None = None,
    tools: Sequence[str] | None = None,
) -> StoredPolicy:
    """Set the policy of a user, and return it: it holds for every request that begins afterwards.

    who: tenant and user. mode: one of `MODES`. timezone: an IANA name, "" for that of the memory.
    tools: patterns of the operator's tools that the user may have; `*` for all. A member that is
    None stays as it is. Raises StoreUnavailable.
    """
    stored = None
    if tools is not None:
        stored = "" if "*" in tools else msgspec.json.encode(list(tools)).decode()
    return await memory.policies.put(who, mode, timezone, stored)
