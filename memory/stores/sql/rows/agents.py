"""The profiles of agents that tenants made: rows, their versions, undo.

A row of a deleted profile stays, so that undo restores it under its id. What a profile says is the
caller's: here it is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, func, insert, or_, select, update

from memory.errors import Conflict, NotFound, TooManyAgents
from memory.ids import clock, new_id, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import Query, execute, execute_sql
from memory.stores.sql.rows.blocks import EditSource

a = t.agents.c
v = t.agent_versions.c
# Built once: it runs in a turn of an agent. An id is looked up first.
ONE = select(t.agents).where(
    a.tenant == bindparam("tenant"), or_(a.name == bindparam("name"), a.id == bindparam("name"))
)
ANY = select(a.id).limit(1)
# How a Letta client spells an id, which is the name of an agent that it makes.
LETTA_NAME = re.compile(r"agent-([0-9a-f]{8})-" + r"([0-9a-f]{4})-" * 3 + r"([0-9a-f]{12})")
CHANGES = "agents"
CHANGED = select(t.meta.c.value).where(t.meta.c.name == bindparam("name"))
# That a list looks through.
MAX_NAMES = 100_000
# Tenants that the log tells of.
MAX_TOLD = 100
# Of a description, in lists of all.
GLANCE_CHARACTERS = 1024


class StoredAgent(msgspec.Struct, frozen=True):
    """One profile. profile: its members, as JSON text. Times are Unix times."""

    id: str
    name: str
    profile: str
    version: int
    created_at: float
    updated_at: float
    updated_by: str


class AgentGlance(msgspec.Struct, omit_defaults=True):
    """What lists of all agents need of a profile. description: its beginning."""

    title: str = ""
    description: str = ""
    model: str = ""
    home: str = "user"
    tags: list[str] = []


class ListedAgent(msgspec.Struct, frozen=True):
    """One entry of a list of all agents. created_at: Unix time."""

    id: str
    name: str
    glance: AgentGlance
    created_at: float


read_glance = msgspec.json.Decoder(AgentGlance).decode


@dataclass(frozen=True, slots=True)
class AgentChange:
    """A profile before and after (None: absent). undoes: the version that this undoes."""

    before: str | None
    after: str | None
    undoes: int | None = None


Edit = Callable[[StoredAgent | None], str | None]
# Raises for a profile that may not be written.
ProfileCheck = Callable[[str], None]


def find(conn: Connection, tenant: str, name: str) -> StoredAgent | None:
    """Return the profile of a name or an id."""
    row = _row(conn, tenant, name)
    if row is None or row.deleted:
        return None
    return _stored(row)


def any_made(conn: Connection) -> bool:
    """Tell whether any tenant ever made a profile."""
    return conn.execute(ANY).first() is not None


def any_with_clock(conn: Connection) -> bool:
    """Tell whether a profile has its memory tidied by the clock."""
    profile = t.agents.c.profile
    has_clock = profile.like('%"cron":%'), profile.not_like('%"cron":""%')
    return conn.execute(select(t.agents.c.id).where(*has_clock).limit(1)).first() is not None


def changes() -> Query:
    """Return the query for what differs after each change that any worker made."""
    return Query(CHANGED, {"name": CHANGES})


def list_agents(conn: Connection, tenant: str) -> list[ListedAgent]:
    """Return a tenant's agents in the order of their names."""
    query = select(a.id, a.name, a.listed, a.created_at).where(
        a.tenant == tenant, a.deleted.is_(False)
    )
    rows = conn.execute(query.order_by(a.name).limit(MAX_NAMES))
    return [ListedAgent(r.id, r.name, read_glance(r.listed), r.created_at) for r in rows]


def list_tenants(conn: Connection, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the tenants that have agents of these names, with the name."""
    query = select(a.tenant, a.name).where(a.deleted.is_(False), a.name.in_(names))
    rows = conn.execute(query.order_by(a.name, a.tenant).limit(MAX_TOLD))
    return [(row.tenant, row.name) for row in rows]


def read_named(conn: Connection, tenant: str, names: Sequence[str]) -> list[StoredAgent]:
    """Return the profiles of these names in their order."""
    query = select(t.agents).where(a.tenant == tenant, a.deleted.is_(False), a.name.in_(names))
    return [_stored(row) for row in conn.execute(query.order_by(a.name))]


def edit(
    conn: Connection, agent_name: tuple[str, str], editor: Edit, source: EditSource, max_agents: int
) -> StoredAgent | None:
    """Apply `editor` to a profile (None: absent; returning None deletes it), with a version row.

    agent_name: tenant, and name or id. max_agents: profiles of a tenant. An edit that changes
    nothing writes nothing. Returns the profile as it is now. Raises Conflict, TooManyAgents.
    """
    tenant, name = agent_name
    row = _row(conn, tenant, name)
    old_agent = None if row is None or row.deleted else _stored(row)
    version = old_agent.version if old_agent else 0
    if source.expect is not None and source.expect != version:
        raise Conflict(
            f"the agent {name!r} is at version {version}, not {source.expect}: read it again and "
            "repeat the edit"
        )
    new_profile = editor(old_agent)
    if new_profile == (old_agent.profile if old_agent else None):
        return old_agent
    if old_agent is None:
        _check_room(conn, tenant, max_agents)
    change = AgentChange(old_agent.profile if old_agent else None, new_profile)
    return _write(conn, agent_name, row, change, source)


def undo(
    conn: Connection,
    agent_name: tuple[str, str],
    source: EditSource,
    max_agents: int,
    check: ProfileCheck,
) -> StoredAgent | None:
    """Undo the newest edit that is not undone yet, as a new version.

    check: raises where the profile that stood before may not be written. Returns the profile; None
    if that edit had made it. Raises NotFound if none is left, TooManyAgents, what `check` raises.
    """
    tenant, name = agent_name
    row = _row(conn, tenant, name)
    if row is None:
        raise NotFound(f"there is no agent {name!r} with a history")
    last_edit = _newest_edit(conn, row.id)
    if last_edit is None:
        raise NotFound(f"nothing is left to undo in the agent {name!r}")
    if last_edit.before is not None:
        check(last_edit.before)
        if row.deleted:
            _check_room(conn, tenant, max_agents)
    now = None if row.deleted else row.profile
    return _write(
        conn, agent_name, row, AgentChange(now, last_edit.before, last_edit.version), source
    )


def _newest_edit(conn: Connection, ident: str) -> Row[Any] | None:
    """Return the newest version that is not undone yet."""
    undone = select(v.undoes).where(v.agent == ident, v.undoes.is_not(None))
    edits = select(t.agent_versions).where(
        v.agent == ident, v.undoes.is_(None), v.version.not_in(undone)
    )
    return conn.execute(edits.order_by(v.version.desc()).limit(1)).first()


def note_memberships(conn: Connection, agent_name: tuple[str, str], memberships: str) -> None:
    """Keep with the newest version, which deletes the profile, what it was a member of."""
    row = _row(conn, *agent_name)
    if row is not None:
        newest = (v.agent == row.id) & (v.version == row.version)
        conn.execute(update(t.agent_versions).where(newest).values(memberships=memberships))


def held_memberships(conn: Connection, agent_name: tuple[str, str]) -> tuple[str, str]:
    """Return a profile's name, and of what it was a member if its deletion is undone next."""
    row = _row(conn, *agent_name)
    if row is None:
        return agent_name[1], "[]"
    last_edit = _newest_edit(conn, row.id)
    return row.name, (last_edit.memberships if last_edit is not None else None) or "[]"


def versions(
    conn: Connection, agent_name: tuple[str, str], before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return versions, newest first. Raises NotFound for a name that no profile ever had."""
    row = _row(conn, *agent_name)
    if row is None:
        raise NotFound(f"there is no agent {agent_name[1]!r}")
    query = select(t.agent_versions).where(v.agent == row.id)
    if before is not None:
        query = query.where(v.version < before)
    names = ("version", "before", "after", "actor", "request_id", "created_at")
    rows = conn.execute(query.order_by(v.version.desc()).limit(limit))
    return [{name: getattr(version_row, name) for name in names} for version_row in rows]


def _row(conn: Connection, tenant: str, name: str) -> Row[Any] | None:
    rows = execute(conn, ONE, {"tenant": tenant, "name": name})
    return next((row for row in rows if row.id == name), rows[0] if rows else None)


def _stored(row: Row[Any]) -> StoredAgent:
    return StoredAgent(
        row.id,
        row.name,
        row.profile,
        row.version,
        row.created_at,
        row.updated_at,
        row.updated_by,
    )


def _check_room(conn: Connection, tenant: str, max_agents: int) -> None:
    is_tenants = a.tenant == tenant, a.deleted.is_(False)
    count = (
        conn.execute(select(func.count()).select_from(t.agents).where(*is_tenants)).scalar() or 0
    )
    if count >= max_agents:
        raise TooManyAgents(
            f"There are {count} agents, and {max_agents} at most. Delete one first."
        )


def _write(
    conn: Connection,
    agent_name: tuple[str, str],
    row: Row[Any] | None,
    change: AgentChange,
    source: EditSource,
) -> StoredAgent | None:
    """Write the profile and its version row. Raises Conflict."""
    now = clock.now()
    tenant = agent_name[0]
    name = row.name if row is not None else agent_name[1]
    version = (row.version if row is not None else 0) + 1
    if row is not None:
        ident = row.id
    else:
        ident = _new_ident(name)
    values = {
        "profile": change.after if change.after is not None else "{}",
        "listed": _summarize_profile(change.after or "{}"),
        "version": version,
        "deleted": change.after is None,
        "updated_at": now,
        "updated_by": source.actor,
    }
    if row is None:
        conn.execute(
            insert(t.agents).values(id=ident, tenant=tenant, name=name, created_at=now, **values)
        )
    else:
        unchanged = (a.id == ident) & (a.version == row.version)
        if not conn.execute(update(t.agents).where(unchanged).values(**values)).rowcount:
            raise Conflict(f"the agent {name!r} changed meanwhile: read it again and repeat")
    _add_version(conn, {"agent": ident, "version": version, "created_at": now}, change, source)
    _tell_others(conn)
    if change.after is None:
        return None
    first_created_at = row.created_at if row is not None else now
    return StoredAgent(ident, name, change.after, version, first_created_at, now, source.actor)


def _new_ident(name: str) -> str:
    """Return the id of a new profile: for one that is named by its id, the same digits."""
    if match := LETTA_NAME.fullmatch(name):
        return f"agent_{''.join(match.groups())}"
    return new_id("agent")


def _summarize_profile(profile: str) -> str:
    glance = read_glance(profile)
    glance.description = glance.description[:GLANCE_CHARACTERS]
    return msgspec.json.encode(glance).decode()


def _add_version(
    conn: Connection, version_values: dict[str, Any], change: AgentChange, source: EditSource
) -> None:
    """Write the version row of a change. version_values: the profile, its version, and the time."""
    conn.execute(
        insert(t.agent_versions).values(
            id=new_key(),
            **version_values,
            before=change.before,
            after=change.after,
            actor=source.actor,
            request_id=source.request_id,
            undoes=change.undoes,
        )
    )


def _tell_others(conn: Connection) -> None:
    """Let other workers notice a change."""
    if sql_driver(conn).is_shared:
        execute_sql(
            conn,
            f"INSERT INTO meta (name, value) VALUES ('{CHANGES}', '1') ON CONFLICT (name) DO "
            "UPDATE SET value = (meta.value::bigint + 1)::text",
        )
