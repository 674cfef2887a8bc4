"""Teams, projects and what they hold, from outside: made, listed, who is in them, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from memory.core.layers import PROJECT, TEAM
from memory.management.reading import read
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.rows import layer_removal, project_rows, teams
from memory.stores.sql.rows import layers as rows
from memory.stores.sql.rows.layers import layer_scope
from memory.stores.sql.rows.project_rows import ProjectRules, StoredProject
from memory.stores.sql.rows.teams import StoredTeam, TeamMember

__all__ = [
    "ProjectRules",
    "StoredProject",
    "StoredTeam",
    "TeamMember",
    "find_project",
    "find_team",
    "layer_scope",
    "list_members",
    "list_projects",
    "list_teams",
    "may_name",
    "put_member",
    "put_project",
    "put_team",
    "remove_member",
    "remove_project",
    "remove_team",
    "teams_of",
    "writers_of",
]
T = TypeVar("T")
# Tenant, and name.
Name = tuple[str, str]


async def _write(memory: Memory, tenant: str, work: Callable[[Connection], T]) -> T:
    try:
        return await memory.db.write(work, lock=f"layers {tenant}")
    finally:
        memory.shared.note(tenant, layered=True)


async def list_teams(
    memory: Memory, tenant: str, users: Sequence[str] | None, after: str, limit: int
) -> list[StoredTeam]:
    """List teams by name, behind a name. Raises StoreUnavailable.

    users: those that one of them is in, None for all.
    """
    return await read(memory, lambda conn: teams.page(conn, tenant, users, after, limit))


async def find_team(memory: Memory, team_name: Name) -> StoredTeam:
    """Return a team. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: teams.find(conn, team_name))


async def put_team(memory: Memory, team_name: Name, description: str) -> StoredTeam:
    """Make a team, or change it. Raises Conflict, StoreUnavailable."""
    return await _write(memory, team_name[0], lambda conn: teams.put(conn, team_name, description))


async def remove_team(memory: Memory, team_name: Name) -> dict[str, int]:
    """Remove a team, its memberships and passages; return the counts.

    Raises NotFound, StoreUnavailable.
    """
    layer = layer_scope(team_name[0], TEAM, team_name[1], memory.secret)
    return await _remove(memory, layer, lambda conn: teams.remove(conn, team_name))


async def _remove(
    memory: Memory, layer: Scope, remove: Callable[[Connection], dict[str, int]]
) -> dict[str, int]:
    try:
        return await layer_removal.remove_layer(memory.db, layer, remove)
    finally:
        memory.shared.note(layer.tenant, layered=True)


async def list_members(memory: Memory, team_name: Name, after: str, limit: int) -> list[TeamMember]:
    """List who is in a team by name, behind a name. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: teams.members(conn, team_name, after, limit))


async def put_member(memory: Memory, team_name: Name, user: str, *, write: bool) -> TeamMember:
    """Put a user into a team. Raises NotFound, Conflict, StoreUnavailable."""
    return await _write(
        memory, team_name[0], lambda conn: teams.put_member(conn, team_name, user, write=write)
    )


async def remove_member(memory: Memory, team_name: Name, user: str) -> None:
    """Take a user out of a team. Raises NotFound, StoreUnavailable."""
    await _write(memory, team_name[0], lambda conn: teams.remove_member(conn, team_name, user))


async def teams_of(memory: Memory, tenant: str, user: str) -> list[TeamMember]:
    """Return the teams that a user is in, by name. Raises StoreUnavailable."""
    return await read(memory, lambda conn: teams.teams_of(conn, (tenant, user)))


async def list_projects(
    memory: Memory, tenant: str, users: Sequence[str] | None, after: str, limit: int
) -> list[StoredProject]:
    """List declared projects by name, behind a name. Raises StoreUnavailable.

    users: those that one of them may name, None for all.
    """
    return await read(memory, lambda conn: project_rows.page(conn, tenant, users, after, limit))


async def find_project(memory: Memory, project_name: Name) -> StoredProject:
    """Return a declared project. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: project_rows.find(conn, project_name))


async def put_project(memory: Memory, project_name: Name, rules: ProjectRules) -> StoredProject:
    """Declare a project, or change it. Raises NotFound, Conflict, StoreUnavailable."""
    return await _write(
        memory, project_name[0], lambda conn: project_rows.put(conn, project_name, rules)
    )


async def remove_project(memory: Memory, project_name: Name) -> dict[str, int]:
    """Remove the declaration of a project and its shared passages; return the counts.

    What users have in it is their own, and stays. Raises NotFound, StoreUnavailable.
    """
    layer = layer_scope(project_name[0], PROJECT, project_name[1], memory.secret)
    return await _remove(memory, layer, lambda conn: project_rows.remove(conn, project_name))


async def may_name(memory: Memory, scope: Scope) -> bool:
    """Tell whether the user of a scope may name its project. Raises StoreUnavailable."""
    if not memory.db.is_shared and scope.tenant not in memory.shared.layered:
        return True
    return await memory.db.read(
        lambda conn: rows.may_name(conn, scope), memory.policy.read_deadline, small=True
    )


async def writers_of(memory: Memory, layer_scope: Scope, users: Sequence[str]) -> dict[str, bool]:
    """Return which of these users read a layer, and whether each may write it.

    layer_scope: the layer, as `layer_scope` names it. Raises StoreUnavailable.
    """
    return await read(memory, lambda conn: rows.list_access(conn, layer_scope, users))
