"""The policies of users from outside: what the memory may do for each."""

from __future__ import annotations

from memory.service import Memory
from memory.session.policies import MODES

__all__ = ["MODES", "find_policy", "put_policy"]


async def find_policy(memory: Memory, tenant: str, user: str) -> str:
    """Return the policy of a user, one of `MODES`. Raises StoreUnavailable."""
    return await memory.policies.find((tenant, user))


async def put_policy(memory: Memory, tenant: str, user: str, mode: str) -> None:
    """Set the policy of a user: it holds for every request that begins afterwards.

    mode: one of `MODES`. Raises StoreUnavailable.
    """
    await memory.policies.put((tenant, user), mode)
