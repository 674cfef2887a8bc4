"""Rows of teams, and of who is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from memory.core.layers import TEAM
from memory.errors import Conflict, NotFound
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import project_rows, shared_blocks
from memory.stores.sql.rows.scopes import UserName

g = t.teams.c
m = t.team_members.c
TEAMS_PER_TENANT = 10_000
TEAMS_PER_USER = 50
MEMBERS_PER_TEAM = 10_000
# Tenant and name.
TeamName = tuple[str, str]


class StoredTeam(NamedTuple):
    """A team. Times are Unix times."""

    name: str
    description: str
    members: int
    created_at: float
    updated_at: float


class TeamMember(NamedTuple):
    """A membership: of a team in a list of its users, and the other way round."""

    name: str
    write: bool
    joined_at: float


def _is(team_name: TeamName) -> tuple[Any, Any]:
    return g.tenant == team_name[0], g.name == team_name[1]


def _in(team_name: TeamName) -> tuple[Any, Any]:
    return m.tenant == team_name[0], m.team == team_name[1]


def page(
    conn: Connection, tenant: str, users: Sequence[str] | None, after: str, limit: int
) -> list[StoredTeam]:
    """Return teams by name, behind a name. users: that one of them is in, None for all."""
    count = select(func.count()).where(m.tenant == g.tenant, m.team == g.name).scalar_subquery()
    query = select(g.name, g.description, count, g.created_at, g.updated_at)
    query = query.where(g.tenant == tenant, g.name > after)
    if users is not None:
        user_teams = select(m.team).where(m.tenant == tenant, m.user.in_(users))
        query = query.where(g.name.in_(user_teams))
    return [StoredTeam(*row) for row in conn.execute(query.order_by(g.name).limit(limit))]


def find(conn: Connection, team_name: TeamName) -> StoredTeam:
    """Return a team. Raises NotFound."""
    count = select(func.count()).where(*_in(team_name)).scalar_subquery()
    query = select(g.name, g.description, count, g.created_at, g.updated_at)
    row = conn.execute(query.where(*_is(team_name))).first()
    if row is None:
        raise NotFound(f"there is no team {team_name[1]!r:.80}")
    return StoredTeam(*row)


def put(conn: Connection, team_name: TeamName, description: str) -> StoredTeam:
    """Make a team, or change it. Raises Conflict if there are too many."""
    now = clock.now()
    values = {"description": description, "updated_at": now}
    if not conn.execute(update(t.teams).where(*_is(team_name)).values(values)).rowcount:
        size = conn.execute(select(func.count()).where(g.tenant == team_name[0])).scalar() or 0
        if size >= TEAMS_PER_TENANT:
            raise Conflict(f"there are {size} teams, and no more are possible: delete one first")
        new_row = {"tenant": team_name[0], "name": team_name[1], "created_at": now}
        conn.execute(insert(t.teams).values(**new_row, **values))
    shared_blocks.raise_changes(conn, team_name[0], layered=True)
    return find(conn, team_name)


def remove(conn: Connection, team_name: TeamName) -> dict[str, int]:
    """Remove a team and its memberships, of blocks and projects too; return the counts.

    Raises NotFound.
    """
    find(conn, team_name)
    conn.execute(delete(t.teams).where(*_is(team_name)))
    members = conn.execute(delete(t.team_members).where(*_in(team_name))).rowcount
    blocks = shared_blocks.leave_all(conn, team_name[0], TEAM, team_name[1])
    project_rows.leave_all(conn, team_name[0], TEAM, team_name[1])
    shared_blocks.raise_changes(conn, team_name[0], layered=True)
    return {"members": members, "shared_blocks": blocks}


def put_member(conn: Connection, team_name: TeamName, user: str, *, write: bool) -> TeamMember:
    """Put a user into a team. Raises NotFound, Conflict."""
    find(conn, team_name)
    is_member = *_in(team_name), m.user == user
    if not conn.execute(update(t.team_members).where(*is_member).values(write=write)).rowcount:
        _check_space(conn, team_name, user)
        values = {"tenant": team_name[0], "team": team_name[1], "user": user, "write": write}
        conn.execute(insert(t.team_members).values(**values, joined_at=clock.now()))
    shared_blocks.raise_changes(conn, team_name[0], layered=True)
    return TeamMember(*conn.execute(select(m.user, m.write, m.joined_at).where(*is_member)).one())


def _check_space(conn: Connection, team_name: TeamName, user: str) -> None:
    """Raise Conflict if no membership more is possible."""
    membership_count = select(func.count()).where(m.tenant == team_name[0], m.user == user)
    if (conn.execute(membership_count).scalar() or 0) >= TEAMS_PER_USER:
        raise Conflict(
            f"the user {user!r:.80} is in {TEAMS_PER_USER} teams, and no more are possible: take "
            "them out of one first"
        )
    if (
        conn.execute(select(func.count()).where(*_in(team_name))).scalar() or 0
    ) >= MEMBERS_PER_TEAM:
        raise Conflict(
            f"the team {team_name[1]!r} has {MEMBERS_PER_TEAM} members, and no more are possible"
        )


def remove_member(conn: Connection, team_name: TeamName, user: str) -> None:
    """Take a user out of a team. Raises NotFound."""
    find(conn, team_name)
    if not conn.execute(delete(t.team_members).where(*_in(team_name), m.user == user)).rowcount:
        raise NotFound(f"the team {team_name[1]!r} has no member {user!r:.80}")
    shared_blocks.raise_changes(conn, team_name[0], layered=True)


def members(conn: Connection, team_name: TeamName, after: str, limit: int) -> list[TeamMember]:
    """Return who is in a team by name, behind a name. Raises NotFound."""
    find(conn, team_name)
    query = select(m.user, m.write, m.joined_at).where(*_in(team_name), m.user > after)
    return [TeamMember(*row) for row in conn.execute(query.order_by(m.user).limit(limit))]


def teams_of(conn: Connection, user_name: UserName) -> list[TeamMember]:
    """Return the teams that a user is in, by name."""
    query = select(m.team, m.write, m.joined_at).where(
        m.tenant == user_name[0], m.user == user_name[1]
    )
    return [TeamMember(*row) for row in conn.execute(query.order_by(m.team))]


def leave_all(conn: Connection, user_name: UserName) -> int:
    """Take a user out of every team; return of how many."""
    is_member = m.tenant == user_name[0], m.user == user_name[1]
    return conn.execute(delete(t.team_members).where(*is_member)).rowcount


def rename_member(conn: Connection, source: UserName, target: UserName) -> None:
    """Give memberships to another name of the same tenant."""
    is_member = m.tenant == source[0], m.user == source[1]
    twin = t.team_members.alias()
    target_teams = select(twin.c.team).where(
        twin.c.tenant == m.tenant, twin.c.team == m.team, twin.c.user == target[1]
    )
    conn.execute(delete(t.team_members).where(*is_member, target_teams.exists()))
    conn.execute(update(t.team_members).where(*is_member).values(user=target[1]))
