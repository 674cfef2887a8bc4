"""The policies of users from outside: what the memory may do for each, and their time zones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from memory.service import Memory
from memory.session.policies import MODES, tools_of
from memory.stores.sql.rows.policies import PolicyEdit, StoredPolicy

__all__ = ["MODES", "PolicyChange", "StoredPolicy", "find_policy", "put_policy", "tools_of"]


async def find_policy(memory: Memory, tenant: str, user: str) -> StoredPolicy:
    """Return the policy of a user. Raises StoreUnavailable."""
    return await memory.policies.read((tenant, user))


class PolicyChange(NamedTuple):
    """What changes of a user's policy; a member that is None stays as it is.

    memory: one of `MODES`. timezone: an IANA name, "" for that of the memory. tools: patterns of
    the operator's tools that the user may have; `*` for all. layers: the kinds of layers that are
    read.
    """

    memory: str | None = None
    timezone: str | None = None
    tools: Sequence[str] | None = None
    layers: tuple[str, ...] | None = None


async def put_policy(
    memory: Memory, user_name: tuple[str, str], change: PolicyChange
) -> StoredPolicy:
    """Set the policy of a user, and return it: it holds for every request that begins afterwards.

    user_name: tenant and user. Raises StoreUnavailable.
    """
    tools = change.tools
    stored_layers = None
    if tools is not None:
        stored_layers = ""
        if "*" not in tools:
            stored_layers = msgspec.json.encode(list(tools)).decode()
    edit = PolicyEdit(change.memory, change.timezone, stored_layers, change.layers)
    try:
        return await memory.policies.put(user_name, edit)
    finally:
        if change.layers is not None:
            memory.shared.note(user_name[0])
