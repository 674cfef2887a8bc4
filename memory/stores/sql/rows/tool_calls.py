"""Rows of calls of the operator's tools: a ledger for retries, and an audit."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, update

from memory.ids import clock, key_at, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import add_row, execute
from memory.stores.sql.rows.scopes import VisibleScopes

# Of one call that are kept for the audit.
MAX_ARGUMENT_CHARACTERS = 8_000
# That are removed in one transaction.
EXPIRED_ROWS = 1000
c = t.tool_calls.c
AT = (
    c.node == bindparam("of_node"),
    c.round == bindparam("of_round"),
    c.place == bindparam("of_place"),
)
FIND = select(c.state, c.name, c.digest, c.result, c.status).where(*AT)
REMOVE = delete(t.tool_calls).where(*AT)
SET_STATE = update(t.tool_calls).where(*AT).values(state=bindparam("new_state"))


class CallPlace(tuple[int, int, int]):
    """Where a call stands: the turn's node, the round, the place in the reply."""

    __slots__ = ()

    @classmethod
    def of(cls, node: int, number: int, place: int) -> CallPlace:
        return cls((node, number, place))

    def parameters(self) -> dict[str, int]:
        return dict(zip(("of_node", "of_round", "of_place"), self, strict=True))


def find(conn: Connection, place: CallPlace) -> Any:
    """Return what is known of a call: state, name, digest, result, status. None for nothing."""
    return execute(conn, FIND, place.parameters()).first()


def put(conn: Connection, at: CallPlace, **values: Any) -> None:
    """Write a call, in place of what was known of it."""
    execute(conn, REMOVE, at.parameters())
    node, number, place = at
    values["arguments"] = values.get("arguments", "")[:MAX_ARGUMENT_CHARACTERS]
    add_row(
        conn,
        t.tool_calls,
        id=new_key(),
        node=node,
        round=number,
        place=place,
        created_at=clock.now(),
        **values,
    )


def set_state(conn: Connection, place: CallPlace, state: str) -> None:
    """Note how a call of an earlier attempt is seen now."""
    execute(conn, SET_STATE, {**place.parameters(), "new_state": state})


def expire(conn: Connection, before: float) -> int:
    """Remove so many calls made before `before`. Returns their number; call again until it is 0."""
    expired_ids = (
        select(c.id).where(c.id < key_at(before), c.created_at < before).limit(EXPIRED_ROWS)
    )
    return conn.execute(delete(t.tool_calls).where(c.id.in_(expired_ids))).rowcount


class CallFilter(msgspec.Struct, frozen=True):
    """Which calls are listed. before: a row key, None for the newest. since: Unix time."""

    user: str = ""
    tool: str = ""
    status: str = ""
    since: float = 0.0
    before: int | None = None


def list_calls(
    conn: Connection, reach: VisibleScopes, call_filter: CallFilter, limit: int
) -> list[dict[str, Any]]:
    """Return calls that are visible, newest first."""
    scopes = t.scopes.c
    query = (
        select(t.tool_calls, scopes.user, scopes.agent)
        .join(t.scopes, scopes.id == c.scope_id, isouter=True)
        .order_by(c.id.desc())
        .limit(limit)
    )
    if reach.tenant is not None:
        query = query.where(c.tenant == reach.tenant)
    if reach.users is not None:
        query = query.where(scopes.user.in_(reach.users))
    for column, value in (
        (scopes.user, call_filter.user),
        (c.name, call_filter.tool),
        (c.status, call_filter.status),
    ):
        if value:
            query = query.where(column == value)
    if call_filter.since:
        query = query.where(c.created_at >= call_filter.since)
    if call_filter.before is not None:
        query = query.where(c.id < call_filter.before)
    return [dict(row._mapping) for row in conn.execute(query)]
