"""The layers that one memory reads, by who is in which team and project now.

The predicate stands in the statement, so that whoever left a team finds nothing of it by any door.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    literal,
    not_,
    or_,
    select,
    union_all,
)

from memory.core.layers import NEAREST_FIRST, PROJECT, TEAM, TENANT, Layer
from memory.errors import BadArguments
from memory.scope import Scope, layer_owner, memory_name, split_layer
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.rows import scopes

s = t.scopes.c
p = t.user_policies.c
tm = t.team_members.c
pr = t.projects.c
pm = t.project_members.c
EVERYONE = "everyone"
# In place of `everyone`, for the own memory of an agent, who is no user.
NOBODY = "-"
# Whose the memory of a layer is.
AGENT = "default"


def layer_scope(tenant: str, kind: str, name: str, secret: bytes) -> Scope:
    """Return the memory that holds what a layer has."""
    return Scope(tenant, layer_owner(kind, name), AGENT, secret)


def viewer_values(scope: Scope) -> dict[str, Any]:
    """Return the parameters of the conditions below for a scope."""
    return {
        "tenant": scope.tenant,
        "user": scope.user or "",
        "project": scope.project,
        "everyone": NOBODY if scope.is_home else EVERYONE,
    }


def _is_read(kind: str) -> ColumnElement[bool]:
    """Return whether the policy of the user leaves them a kind of layers."""
    excluded = select(literal(1)).where(
        p.tenant == bindparam("tenant"),
        p.user == bindparam("user"),
        p.layers.is_not(None),
        p.layers.not_like(f"%{kind}%"),
    )
    return not_(exists(excluded))


def _list_teams() -> Select[Any]:
    """Return the query for the names of the user's teams."""
    return select(tm.team).where(tm.tenant == bindparam("tenant"), tm.user == bindparam("user"))


def _is_listed() -> ColumnElement[bool]:
    """Return whether the user may name a project."""
    memberships = select(literal(1)).where(
        pm.tenant == pr.tenant,
        pm.project == pr.name,
        or_(
            and_(pm.kind == "user", pm.name == bindparam("user")),
            and_(pm.kind == "team", pm.name.in_(_list_teams())),
        ),
    )
    return or_(and_(pr.everyone, bindparam("everyone") == EVERYONE), exists(memberships))


def _list_projects() -> Select[Any]:
    """Return the query for the project of the memory, if it is declared and its user listed."""
    return select(pr.name).where(
        pr.tenant == bindparam("tenant"), pr.name == bindparam("project"), _is_listed()
    )


def reads_everyone() -> ColumnElement[bool]:
    """Return the condition for what all named users read."""
    return and_(bindparam("everyone") == EVERYONE, _is_read(TENANT))


def is_in(kind: str, name: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition for what the user's teams, or the memory's project, read."""
    if kind == TEAM:
        names = _list_teams()
    else:
        names = _list_projects()
    return and_(name.in_(names), _is_read(kind))


def _of_kind(kind: str, name: ColumnElement[str], write: ColumnElement[bool]) -> Select[Any]:
    """Return the query for layers of a kind, without those that hold nothing and cannot."""
    owner = literal(layer_owner(kind, "")) + name
    return select(
        literal(kind).label("kind"), name.label("name"), write.label("write"), s.id, s.edits
    ).join(
        t.scopes,
        and_(s.tenant == bindparam("tenant"), s.user == owner, s.agent == AGENT),
        isouter=True,
    )


_teams = _of_kind(TEAM, tm.team, tm.write).where(
    tm.tenant == bindparam("tenant"), tm.user == bindparam("user"), _is_read(TEAM)
)
_projects = _of_kind(PROJECT, pr.name, pr.write).where(
    pr.tenant == bindparam("tenant"),
    pr.name == bindparam("project"),
    _is_listed(),
    _is_read(PROJECT),
)
_tenant = select(
    literal(TENANT).label("kind"), literal("").label("name"), literal(False), s.id, s.edits
).where(
    s.tenant == bindparam("tenant"),
    s.user == layer_owner(TENANT, ""),
    s.agent == AGENT,
    reads_everyone(),
)
# Built once: it runs in turns.
LAYERS = union_all(_projects, _teams, _tenant)


def list_layers(conn: Connection, scope: Scope) -> list[Layer]:
    """Return the layers that a named scope reads beside its own, the nearest first."""
    if not scope.is_named:
        return []
    layers = [
        Layer(row[0], row[1], bool(row[2]), row[3], row[4] or 0)
        for row in execute(conn, LAYERS, viewer_values(scope))
    ]
    return sorted(layers, key=lambda layer: (NEAREST_FIRST.index(layer.kind), layer.name))


ALLOWED = select(
    exists(
        select(literal(1)).where(pr.tenant == bindparam("tenant"), pr.name == bindparam("project"))
    ),
    exists(_list_projects()),
)


def may_name(conn: Connection, scope: Scope) -> bool:
    """Tell whether the user of a scope may name its project: one of their own, or listed in it."""
    is_declared, is_listed = execute(conn, ALLOWED, viewer_values(scope)).one()
    return not is_declared or bool(is_listed)


def writable_row(conn: Connection, scope: Scope, label: str) -> tuple[Layer, int]:
    """Return a layer that a scope may write, and the row of what it holds, made if missing.

    Raises BadArguments for another one.
    """
    writable_layers = {one.label: one for one in list_layers(conn, scope) if one.write}
    if (layer := writable_layers.get(label)) is None:
        layer_names = ", ".join(sorted(writable_layers)) or "none"
        raise BadArguments(
            f"`share` is {label!r:.200}, which cannot be written here. Those that can: "
            f"{layer_names}."
        )
    row = layer.scope_id
    if row is None:
        owner = layer_scope(scope.tenant, layer.kind, layer.name, scope.secret)
        row = scopes.get_or_create(conn, scopes.current_owner(conn, owner))
    return layer, row


def is_of(kind: str, member: Any, users: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition for a membership by a team, or a project, of one of these users.

    member: the columns of memberships.
    """
    user_teams = select(tm.team).where(tm.tenant == member.tenant, tm.user.in_(users))
    if kind == TEAM:
        return and_(member.kind == TEAM, member.name.in_(user_teams))
    memberships = select(literal(1)).where(
        pm.tenant == pr.tenant,
        pm.project == pr.name,
        or_(
            and_(pm.kind == "user", pm.name.in_(users)),
            and_(pm.kind == TEAM, pm.name.in_(user_teams)),
        ),
    )
    named_projects = select(pr.name).where(
        pr.tenant == member.tenant, or_(pr.everyone, exists(memberships))
    )
    return and_(member.kind == PROJECT, member.name.in_(named_projects))


def list_access(conn: Connection, layer: Scope, users: Sequence[str]) -> dict[str, bool]:
    """Return which of these users read a layer, and whether each may write it.

    A project is read by whoever may name it.
    """
    kind, name = split_layer(layer.user or "")
    access_by_user: dict[str, bool] = {}
    for user in users:
        project = name if kind == PROJECT else ""
        viewer = Scope(layer.tenant, user, memory_name(AGENT, project), b"")
        for one in list_layers(conn, viewer):
            if (one.kind, one.name) == (kind, name):
                access_by_user[user] = one.write
    if kind == TENANT:
        return dict.fromkeys(users, False)
    return access_by_user
