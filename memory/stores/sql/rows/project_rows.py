"""Rows of declared projects, and of who may name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from memory.core.layers import PROJECT, TEAM
from memory.errors import Conflict, NotFound
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import shared_blocks
from memory.stores.sql.rows.scopes import UserName

p = t.projects.c
m = t.project_members.c
USER = "user"
PROJECTS_PER_TENANT = 10_000
# Tenant and name.
ProjectName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ProjectRules:
    """What a project is declared with. write: who may name it may share with it."""

    description: str = ""
    teams: Sequence[str] = ()
    users: Sequence[str] = ()
    everyone: bool = False
    write: bool = False


@dataclass(frozen=True, slots=True)
class StoredProject:
    """A declared project. Times are Unix times."""

    name: str
    rules: ProjectRules
    created_at: float
    updated_at: float


def _is(project_name: ProjectName) -> tuple[Any, Any]:
    return p.tenant == project_name[0], p.name == project_name[1]


def _in(project_name: ProjectName) -> tuple[Any, Any]:
    return m.tenant == project_name[0], m.project == project_name[1]


def page(
    conn: Connection, tenant: str, users: Sequence[str] | None, after: str, limit: int
) -> list[StoredProject]:
    """Return projects by name, behind a name. users: that one of them may name, None for all."""
    query = select(t.projects).where(p.tenant == tenant, p.name > after)
    if users is not None:
        query = query.where(_is_listed(users))
    rows = conn.execute(query.order_by(p.name).limit(limit)).all()
    return [_stored(conn, row) for row in rows]


def _is_listed(users: Sequence[str]) -> Any:
    """Return whether one of these users may name a project."""
    tm = t.team_members.c
    teams = select(tm.team).where(tm.tenant == p.tenant, tm.user.in_(users))
    memberships = select(m.name).where(
        m.tenant == p.tenant,
        m.project == p.name,
        or_(
            and_(m.kind == USER, m.name.in_(users)),
            and_(m.kind == TEAM, m.name.in_(teams)),
        ),
    )
    return or_(p.everyone, memberships.exists())


def find(conn: Connection, project_name: ProjectName) -> StoredProject:
    """Return a declared project. Raises NotFound."""
    row = conn.execute(select(t.projects).where(*_is(project_name))).first()
    if row is None:
        raise NotFound(f"there is no project {project_name[1]!r:.80}")
    return _stored(conn, row)


def _stored(conn: Connection, row: Any) -> StoredProject:
    members_by_kind: dict[str, list[str]] = {TEAM: [], USER: []}
    query = select(m.kind, m.name).where(*_in((row.tenant, row.name))).order_by(m.name)
    for kind, name in conn.execute(query):
        members_by_kind[kind].append(name)
    rules = ProjectRules(
        row.description,
        members_by_kind[TEAM],
        members_by_kind[USER],
        bool(row.everyone),
        bool(row.write),
    )
    return StoredProject(row.name, rules, row.created_at, row.updated_at)


def put(conn: Connection, project_name: ProjectName, rules: ProjectRules) -> StoredProject:
    """Declare a project, or change it. Raises Conflict for too many, NotFound for a team."""
    _check_teams(conn, project_name[0], rules.teams)
    now = clock.now()
    values = {
        "description": rules.description,
        "everyone": rules.everyone,
        "write": rules.write,
        "updated_at": now,
    }
    if not conn.execute(update(t.projects).where(*_is(project_name)).values(values)).rowcount:
        size = conn.execute(select(func.count()).where(p.tenant == project_name[0])).scalar() or 0
        if size >= PROJECTS_PER_TENANT:
            raise Conflict(f"there are {size} projects, and no more are possible: delete one first")
        new_row = {"tenant": project_name[0], "name": project_name[1], "created_at": now}
        conn.execute(insert(t.projects).values(**new_row, **values))
    conn.execute(delete(t.project_members).where(*_in(project_name)))
    place = {"tenant": project_name[0], "project": project_name[1]}
    member_rows = [
        {**place, "kind": kind, "name": name}
        for kind, names in ((TEAM, rules.teams), (USER, rules.users))
        for name in dict.fromkeys(names)
    ]
    if member_rows:
        conn.execute(insert(t.project_members), member_rows)
    shared_blocks.raise_changes(conn, project_name[0], layered=True)
    return find(conn, project_name)


def _check_teams(conn: Connection, tenant: str, names: Sequence[str]) -> None:
    """Raise NotFound for a team that there is not."""
    teams = t.teams.c
    stored_teams = set(
        conn.execute(
            select(teams.name).where(teams.tenant == tenant, teams.name.in_(names))
        ).scalars()
    )
    missing_team = next((name for name in names if name not in stored_teams), None)
    if missing_team is not None:
        raise NotFound(f"there is no team {missing_team!r:.80}")


def remove(conn: Connection, project_name: ProjectName) -> dict[str, int]:
    """Remove the declaration of a project, and what it is a member of; return the counts.

    Raises NotFound.
    """
    project = find(conn, project_name)
    conn.execute(delete(t.projects).where(*_is(project_name)))
    conn.execute(delete(t.project_members).where(*_in(project_name)))
    blocks = shared_blocks.leave_all(conn, project_name[0], PROJECT, project_name[1])
    shared_blocks.raise_changes(conn, project_name[0], layered=True)
    return {"members": len(project.rules.teams) + len(project.rules.users), "shared_blocks": blocks}


def leave_all(conn: Connection, tenant: str, kind: str, name: str) -> int:
    """Take a user or a team out of every project; return of how many."""
    is_member = m.tenant == tenant, m.kind == kind, m.name == name
    return conn.execute(delete(t.project_members).where(*is_member)).rowcount


def rename_member(conn: Connection, source: UserName, target: UserName) -> None:
    """Give a user's places to another name of the same tenant."""
    is_member = m.tenant == source[0], m.kind == USER, m.name == source[1]
    twin = t.project_members.alias()
    target_places = select(twin.c.project).where(
        twin.c.tenant == m.tenant,
        twin.c.project == m.project,
        twin.c.kind == USER,
        twin.c.name == target[1],
    )
    conn.execute(delete(t.project_members).where(*is_member, target_places.exists()))
    conn.execute(update(t.project_members).where(*is_member).values(name=target[1]))
