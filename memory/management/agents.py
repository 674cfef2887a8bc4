"""The profiles of agents from outside: made, changed, listed, undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.owners import agent_memories
from memory.stores.sql.rows import agents as rows
from memory.stores.sql.rows.agents import Edit, ListedAgent, StoredAgent
from memory.stores.sql.rows.blocks import EditSource

__all__ = [
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
Name = tuple[str, str]  # tenant, and name or id


async def find_agent(memory: Memory, tenant: str, name: str) -> StoredAgent | None:
    """Return the profile of a name or an id. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, tenant, name))


async def list_agents(memory: Memory, tenant: str) -> list[ListedAgent]:
    """Return a tenant's agents in the order of their names. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_agents(conn, tenant))


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


async def undo_edit(
    memory: Memory, agent_name: Name, source: EditSource, max_versions: int
) -> StoredAgent | None:
    """Undo the newest edit and return the profile; None if it is gone.

    Raises NotFound, Conflict, StoreUnavailable.
    """
    try:
        return await memory.db.write(
            lambda conn: rows.undo(conn, agent_name, source, max_versions),
            lock=owner_lock(agent_name[0], ""),
        )
    finally:
        memory.agents.forget()


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
