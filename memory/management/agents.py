"""The profiles of agents from outside: made, changed, listed, undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.engine.write_lock import EVERYTHING, owner_lock
from memory.stores.sql.owners import agent_memories
from memory.stores.sql.rows import agent_memberships
from memory.stores.sql.rows import agents as rows
from memory.stores.sql.rows.agent_memberships import LostMembership
from memory.stores.sql.rows.agents import Edit, ListedAgent, ProfileCheck, StoredAgent
from memory.stores.sql.rows.blocks import EditSource

__all__ = [
    "LostMembership",
    "UndoneEdit",
    "any_with_clock",
    "delete_agent",
    "edit_agent",
    "erase_memories",
    "find_agent",
    "list_agents",
    "list_memories",
    "list_tenants",
    "list_versions",
    "read_agents",
    "undo_edit",
]
# Tenant, and name or id.
Name = tuple[str, str]
T = TypeVar("T")


class UndoneEdit(msgspec.Struct, frozen=True):
    """An undone edit. agent: the profile, None if it is gone. lost: what is not restored."""

    agent: StoredAgent | None
    lost: Sequence[LostMembership] = ()


async def find_agent(memory: Memory, tenant: str, name: str) -> StoredAgent | None:
    """Return the profile of a name or an id. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, tenant, name))


async def list_agents(memory: Memory, tenant: str) -> list[ListedAgent]:
    """Return a tenant's agents in the order of their names. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_agents(conn, tenant))


async def any_with_clock(memory: Memory) -> bool:
    """Tell whether a profile has its memory tidied by the clock. Raises StoreUnavailable."""
    return await read(memory, rows.any_with_clock)


async def list_tenants(memory: Memory, names: Sequence[str]) -> list[tuple[str, str]]:
    """List the tenants that have agents of these names, with the name. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_tenants(conn, names))


async def read_agents(memory: Memory, tenant: str, names: Sequence[str]) -> list[StoredAgent]:
    """Return the profiles of these names in their order. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.read_named(conn, tenant, names))


async def edit_agent(
    memory: Memory, agent_name: Name, edit: Edit, source: EditSource, max_versions: int
) -> StoredAgent | None:
    """Edit a profile and return it; None if it was deleted.

    edit: gives what it says then. max_versions: profiles of a tenant. Raises Conflict,
    StoreUnavailable.
    """
    try:
        return await memory.db.write(
            lambda conn: rows.edit(conn, agent_name, edit, source, max_versions),
            lock=owner_lock(agent_name[0], ""),
        )
    finally:
        memory.agents.forget()


async def delete_agent(
    memory: Memory, agent_name: Name, source: EditSource, *, with_blocks: bool
) -> int:
    """Delete a profile, and take it out of its shared blocks; undo restores both.

    with_blocks: shared blocks that were made with an agent, and that only this one has, go as well;
    returns how many these are. Raises Conflict, StoreUnavailable.
    """

    def work(conn: Connection) -> int:
        rows.edit(conn, agent_name, lambda _: None, source, 0)
        name, _ = rows.held_memberships(conn, agent_name)
        held = agent_memberships.leave_all(
            conn, (agent_name[0], name), source, with_blocks=with_blocks
        )
        if held:
            rows.note_memberships(conn, agent_name, msgspec.json.encode(held).decode())
        return sum(membership.with_block for membership in held)

    return await _write_with_blocks(memory, agent_name[0], work)


async def undo_edit(
    memory: Memory,
    agent_name: Name,
    source: EditSource,
    max_versions: int,
    check: ProfileCheck,
) -> UndoneEdit:
    """Undo the newest edit; if that deleted the profile, it is in its shared blocks again.

    check: of the profile that stood before. Raises what it raises, NotFound, Conflict,
    StoreUnavailable.
    """

    def work(conn: Connection) -> UndoneEdit:
        name, noted = rows.held_memberships(conn, agent_name)
        restored = rows.undo(conn, agent_name, source, max_versions, check)
        member = agent_name[0], name
        if restored is None:
            agent_memberships.leave_all(conn, member, source, with_blocks=False)
            return UndoneEdit(None)
        held = agent_memberships.read_held(noted)
        return UndoneEdit(restored, agent_memberships.join_again(conn, member, held, source))

    return await _write_with_blocks(memory, agent_name[0], work)


async def _write_with_blocks(memory: Memory, tenant: str, work: Callable[[Connection], T]) -> T:
    """Write what concerns profiles and shared blocks: nobody else writes meanwhile."""
    try:
        return await memory.db.write(work, lock=EVERYTHING)
    finally:
        memory.agents.forget()
        memory.shared.note(tenant)


async def list_versions(
    memory: Memory, agent_name: Name, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List a profile's versions, newest first, before a version.

    Raises NotFound for a name that no profile ever had; StoreUnavailable.
    """
    return await read(memory, lambda conn: rows.versions(conn, agent_name, before, limit))


async def erase_memories(memory: Memory, agent_name: Name) -> dict[str, int]:
    """Erase all memories of an agent, of whichever user; return rows removed by kind.

    Raises StoreUnavailable: repeating it continues the erasure.
    """
    db = memory.db
    return await agent_memories.erase(db, memory.secret, agent_name, db.application_tables)


async def list_memories(memory: Memory, tenant: str, user: str) -> list[dict[str, Any]]:
    """List the agents with which a user has a memory. Raises StoreUnavailable."""
    return await read(memory, lambda conn: agent_memories.list_agents(conn, tenant, user))
