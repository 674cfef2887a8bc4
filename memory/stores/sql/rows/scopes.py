"""Scope rows and generations: the only place that decides whether a write may still happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from memory.errors import ErasedMeanwhile
from memory.ids import clock, new_key
from memory.scope import KIND_MARK, Scope, owner_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import (
    Query,
    execute,
    in_clause,
    insert_with_conflict,
    key_list,
    select_in_batches,
)


@dataclass(frozen=True, slots=True)
class ScopeOwner:
    """A scope as a turn found it.

    generation: number of the owner's erasures; a later one makes this turn's writes void.
    """

    scope: Scope
    generation: int


ERASED_MEANWHILE = "the user was erased while this ran; nothing of it is kept"
# Built once: they run in every turn, and building a statement costs more than running it.
_c = t.scopes.c
GENERATION = select(t.generations.c.generation).where(t.generations.c.owner == bindparam("owner"))
_changes = t.shared_changes.c
WITH_CHANGES = select(
    select(t.generations.c.generation)
    .where(t.generations.c.owner == bindparam("owner"))
    .scalar_subquery(),
    select(_changes.changes).where(_changes.tenant == bindparam("tenant")).scalar_subquery(),
    select(_changes.layered).where(_changes.tenant == bindparam("tenant")).scalar_subquery(),
)
FIND = select(_c.id).where(
    _c.tenant == bindparam("tenant"), _c.user == bindparam("user"), _c.agent == bindparam("agent")
)
FIND_UNNAMED = select(_c.id).where(
    _c.tenant == bindparam("tenant"), _c.user.is_(None), _c.agent == bindparam("agent")
)


def _status_columns(driver: SqlDriver) -> Sequence[Any]:
    # Where others may write too, versions are compared.
    versions = (_c.version.label("scope_version"), t.conversations.c.version.label("version"))
    return (
        _c.id,
        _c.active_at,
        _c.proven,
        t.conversations.c.id.label("conversation"),
        t.conversations.c.head,
        t.conversations.c.explicit,
        t.conversations.c.resent,
        t.conversations.c.opening,
        t.conversations.c.task,
        *driver.index.newest,
        *(versions if driver.is_shared else ()),
    )


@cache
def _select_status(driver: SqlDriver) -> Any:
    owner_generation = GENERATION.scalar_subquery()
    return (
        select(*_status_columns(driver), func.coalesce(owner_generation, 0).label("generation"))
        .join_from(
            t.scopes,
            t.conversations,
            (t.conversations.c.id == bindparam("conversation"))
            & (t.conversations.c.scope_id == _c.id),
            isouter=True,
        )
        .where(_c.id == bindparam("which"))
    )


@cache
def _select_statuses_of_rows(driver: SqlDriver) -> Any:
    rows = t.journal.c
    return (
        select(rows.id.label("row"), *_status_columns(driver))
        .join_from(t.journal, t.scopes, _c.id == rows.scope_id)
        .join(
            t.conversations,
            (t.conversations.c.id == rows.conversation) & (t.conversations.c.scope_id == _c.id),
            isouter=True,
        )
        .where(driver.is_listed(rows.id))
    )


TOUCH = update(t.scopes).where(_c.id == bindparam("which")).values(active_at=bindparam("now"))
TOUCH_OUTSIDE = TOUCH.values(edits=_c.edits + 1, version=_c.version + 1)
RAISE = update(t.scopes).where(_c.id == bindparam("which")).values(version=_c.version + 1)
VERSIONS = (
    select(
        _c.version,
        t.conversations.c.version,
        select(_changes.changes).where(_changes.tenant == _c.tenant).scalar_subquery(),
    )
    .join_from(
        t.scopes,
        t.conversations,
        (t.conversations.c.id == bindparam("conversation")) & (t.conversations.c.scope_id == _c.id),
        isouter=True,
    )
    .where(_c.id == bindparam("which"))
)
_general = t.scopes.alias()
WITH_GENERAL = VERSIONS.add_columns(
    select(_general.c.version)
    .where(
        _general.c.tenant == _c.tenant,
        _general.c.user == _c.user,
        _general.c.agent == bindparam("general"),
    )
    .scalar_subquery()
)
PROVE = (
    update(t.scopes).where(_c.id == bindparam("which"), _c.proven.is_(False)).values(proven=True)
)


def erased_at(conn: Connection, owners: Sequence[bytes]) -> dict[bytes, float]:
    """Return when owners were erased, of those that ever were."""
    generations = t.generations.c
    erased_rows = conn.execute(
        select(generations.owner, generations.erased_at).where(
            generations.owner.in_(owners), generations.erased_at.is_not(None)
        )
    )
    return {row.owner: row.erased_at for row in erased_rows}


def generation(conn: Connection, owner: bytes) -> int:
    return int(execute(conn, GENERATION, {"owner": owner}).scalar() or 0)


def find(conn: Connection, scope: Scope) -> int | None:
    """Return the scope's row id, if it has one."""
    values = {"tenant": scope.tenant, "agent": scope.agent}
    scope_id: int | None = (
        execute(conn, FIND, {**values, "user": scope.user}).scalar()
        if scope.is_named
        else execute(conn, FIND_UNNAMED, values).scalar()
    )
    return scope_id


EDITS = select(_c.edits, _c.version).where(_c.id == bindparam("scope"))


def read_counts(conn: Connection, scope_id: int) -> tuple[int, int]:
    """Return how often a scope was edited from outside, and its version."""
    row = execute(conn, EDITS, {"scope": scope_id}).one()
    return row[0], row[1]


def scope_status(
    conn: Connection, owner: ScopeOwner, scope_id: int | None, conversation: int
) -> Any:
    """Read the status of a known scope and of a conversation of it, in one query.

    Returns id, active_at, proven, generation, conversation (None if missing), head, explicit,
    resent, opening, task, stored and indexed (see `SearchIndex`); None if the scope is
    missing. Raises ErasedMeanwhile if the owner was erased after this turn began.
    """
    if scope_id is None:
        return None
    status_row = execute(
        conn,
        _select_status(sql_driver(conn)),
        {"which": scope_id, "owner": owner.scope.owner, "conversation": conversation},
    ).first()
    if (
        status_row.generation if status_row is not None else generation(conn, owner.scope.owner)
    ) != owner.generation:
        raise ErasedMeanwhile(ERASED_MEANWHILE)
    return status_row


def statuses_of_rows(conn: Connection, owners: Mapping[int, ScopeOwner]) -> list[Any]:
    """Read what `scope_status` does of rows of the journal. owners: by the rows' keys.

    Raises ErasedMeanwhile if any of the owners was erased after its turn began.
    """
    owner_keys = list({owner.scope.owner for owner in owners.values()})
    stored_rows = select_in_batches(conn, _select_generations, {}, owner_keys)
    generations = {row.owner: row.generation for row in stored_rows}
    for owner in owners.values():
        if generations.get(owner.scope.owner, 0) != owner.generation:
            raise ErasedMeanwhile(ERASED_MEANWHILE)
    statement = _select_statuses_of_rows(sql_driver(conn))
    statuses = {row.row: row for row in execute(conn, statement, key_list(conn, [*owners]))}
    return [statuses.get(key) for key in owners]


@cache
def _select_generations(size: int) -> Any:
    generations = t.generations.c
    return select(generations.owner, generations.generation).where(
        in_clause(generations.owner, size)
    )


def current_owner(conn: Connection, scope: Scope) -> ScopeOwner:
    return ScopeOwner(scope, generation(conn, scope.owner))


def owner_and_changes(conn: Connection, scope: Scope) -> tuple[ScopeOwner, int | None, bool]:
    """Return the owner, and how often what the tenant shares changed, None for never.

    And whether the tenant has layers beside shared blocks.
    """
    row = execute(conn, WITH_CHANGES, {"owner": scope.owner, "tenant": scope.tenant}).one()
    return ScopeOwner(scope, int(row[0] or 0)), row[1], bool(row[2])


def get_or_create(conn: Connection, owner: ScopeOwner) -> int:
    """Return the scope's row id, created if missing.

    Raises ErasedMeanwhile if the owner was erased after this turn began.
    """
    if generation(conn, owner.scope.owner) != owner.generation:
        raise ErasedMeanwhile(ERASED_MEANWHILE)
    if (scope_id := find(conn, owner.scope)) is not None:
        return scope_id
    now = clock.now()
    ident = new_key()
    row = {
        "id": ident,
        "tenant": owner.scope.tenant,
        "user": owner.scope.user,
        "agent": owner.scope.agent,
        "created_at": now,
        "active_at": now,
        **({"project": owner.scope.project} if owner.scope.project else {}),
    }
    execute(conn, _add_if_missing(sql_driver(conn), tuple(row)), row)
    # The unnamed of a tenant have one scope, and on a server write side by side.
    is_unnamed_stored = None
    if not owner.scope.is_named:
        is_unnamed_stored = find(conn, owner.scope)
    return is_unnamed_stored or ident


@cache
def _add_if_missing(driver: SqlDriver, columns: tuple[str, ...]) -> Any:
    return insert_with_conflict(driver, t.scopes, columns).on_conflict_do_nothing()


def remove_if_empty(conn: Connection, scope_id: int) -> None:
    """Remove a scope that holds nothing."""
    kinds = (
        *(t.conversations, t.blocks, t.passages),
        *(t.file_tables.file_versions, t.skill_tables.skills),
    )
    if all(
        conn.execute(select(k.c.id).where(k.c.scope_id == scope_id).limit(1)).first() is None
        for k in kinds
    ):
        conn.execute(delete(t.scopes).where(t.scopes.c.id == scope_id))


def touch(conn: Connection, scope_id: int, *, outside: bool = False) -> None:
    """Record activity.

    outside: an edit from outside the conversation, which outdates every frozen core text.
    """
    execute(conn, TOUCH_OUTSIDE if outside else TOUCH, {"which": scope_id, "now": clock.now()})


def raise_version(conn: Connection, scope_id: int) -> None:
    """Outdate what is kept of the scope, where others may keep it too."""
    if sql_driver(conn).is_shared:
        execute(conn, RAISE, {"which": scope_id})


def versions(scope_id: int, conversation: int, project_tenant: str | None = None) -> Query:
    """Return the query for the versions of a scope, a conversation of it, and shared blocks.

    project_tenant: in a project the agent, and then the version of the general memory too.
    """
    parameters = {"which": scope_id, "conversation": conversation}
    if project_tenant is None:
        return Query(VERSIONS, parameters)
    return Query(WITH_GENERAL, {**parameters, "general": project_tenant})


def nth_turn(conn: Connection, scope_id: int, interval: int) -> bool:
    """Count a turn of the scope; return whether `interval` turns have passed."""
    conn.execute(update(t.scopes).where(_c.id == scope_id).values(turns=_c.turns + 1))
    return bool(
        conn.execute(
            update(t.scopes).where(_c.id == scope_id, _c.turns >= interval).values(turns=0)
        ).rowcount
    )


def prove(conn: Connection, scope_id: int) -> None:
    """Record that an upstream accepted the scope's tenant."""
    execute(conn, PROVE, {"which": scope_id})


def proven(conn: Connection, tenant: str) -> bool:
    return (
        conn.execute(
            select(t.scopes.c.id).where(t.scopes.c.tenant == tenant, t.scopes.c.proven).limit(1)
        ).first()
        is not None
    )


def probe(conn: Connection) -> None:
    """Run the smallest possible query."""
    conn.execute(select(_c.id).limit(1)).first()


def scopes_of(conn: Connection, tenant: str, user: str) -> list[int]:
    """Return the scopes of all agents of this user."""
    return list(
        conn.execute(
            select(t.scopes.c.id).where(t.scopes.c.tenant == tenant, t.scopes.c.user == user)
        ).scalars()
    )


@dataclass(frozen=True, slots=True)
class VisibleScopes:
    """What a key may see.

    tenant: None for every tenant. users: None for every user, and unnamed users' conversations.
    """

    tenant: str | None
    users: Sequence[str] | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the predicate on scopes, which every query by id must have."""
        clauses: list[ColumnElement[bool]] = []
        if self.tenant is not None:
            clauses.append(t.scopes.c.tenant == self.tenant)
        if self.users is not None:
            clauses.append(t.scopes.c.user.in_(self.users))
        return clauses


COUNTED = {
    "blocks": t.blocks,
    "passages": t.passages,
    "messages": t.messages,
    "conversations": t.conversations,
}
# Tenant, user.
UserName = tuple[str, str]


def users(
    conn: Connection, reach: VisibleScopes, after: UserName | None, limit: int, part: str = ""
) -> list[dict[str, Any]]:
    """Return users by tenant and name after `after`, with counts over all agents.

    part: of their names, upper or lower case.
    """
    scopes = t.scopes.c
    query = _USERS.where(*reach.conditions())
    if part:
        query = query.where(scopes.user.icontains(part, autoescape=True))
    if after is not None:
        query = query.where(tuple_(scopes.tenant, scopes.user) > tuple_(*map(literal, after)))
    return _describe_users(conn, query.order_by(scopes.tenant, scopes.user).limit(limit))


def users_named(conn: Connection, names: Sequence[UserName]) -> list[dict[str, Any]]:
    """Return users of these tenants and names, in this order, as `users` does."""
    if not names:
        return []
    scopes = t.scopes.c
    rows = _describe_users(conn, _USERS.where(tuple_(scopes.tenant, scopes.user).in_(names)))
    by_name = {(row["tenant"], row["id"]): row for row in rows}
    return [by_name[name] for name in names if name in by_name]


# Those of agents and layers are no users.
_USERS = (
    select(
        t.scopes.c.tenant,
        t.scopes.c.user,
        func.min(t.scopes.c.created_at),
        func.max(t.scopes.c.active_at),
    )
    .where(t.scopes.c.user.is_not(None), ~t.scopes.c.user.startswith(KIND_MARK))
    .group_by(t.scopes.c.tenant, t.scopes.c.user)
)


def _describe_users(conn: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    """Return users with counts over all agents."""
    rows = conn.execute(query).all()
    names = [(r[0], r[1]) for r in rows]
    if names:
        counts = {kind: _counts(conn, table, names) for kind, table in COUNTED.items()}
    else:
        counts = {}
    return [
        {
            "tenant": r[0],
            "id": r[1],
            "created_at": r[2],
            "last_active_at": r[3],
            **{kind: counts[kind].get((r[0], r[1]), 0) for kind in COUNTED},
        }
        for r in rows
    ]


def _counts(conn: Connection, table: Table, names: Sequence[UserName]) -> dict[UserName, int]:
    scopes = t.scopes.c
    query = (
        select(scopes.tenant, scopes.user, func.count())
        .select_from(table.join(t.scopes, scopes.id == table.c.scope_id))
        .where(tuple_(scopes.tenant, scopes.user).in_(names))
    )
    if "deleted" in table.c:
        query = query.where(table.c.deleted.is_(False))
    if "deleted_at" in table.c:
        query = query.where(table.c.deleted_at.is_(None))
    return {(r[0], r[1]): r[2] for r in conn.execute(query.group_by(scopes.tenant, scopes.user))}


def void(conn: Connection, owner: bytes) -> None:
    """Increase the owner's generation: what began before can no longer write."""
    generations = t.generations.c
    next_generation = (
        update(t.generations)
        .where(generations.owner == owner)
        .values(generation=generations.generation + 1)
    )
    if conn.execute(next_generation).rowcount == 0:
        conn.execute(insert(t.generations).values(owner=owner, generation=1))


def erase(conn: Connection, secret: bytes, tenant: str, user: str) -> tuple[list[int], int]:
    """Increase the user's generation and remove the scopes and their jobs.

    So nobody finds the rows, and no job writes any more. Returns the scopes' row keys, for
    `row_removal`, and the number of jobs.
    """
    owner = owner_key(secret, tenant, user)
    void(conn, owner)
    generations = t.generations.c
    conn.execute(
        update(t.generations).where(generations.owner == owner).values(erased_at=clock.now())
    )
    ids = scopes_of(conn, tenant, user)
    conn.execute(delete(t.scopes).where(t.scopes.c.id.in_(ids)))
    return ids, conn.execute(delete(t.jobs).where(t.jobs.c.scope_id.in_(ids))).rowcount
