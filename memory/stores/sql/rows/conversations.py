"""Conversation rows: list, find by name within what a key may see, remove."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select

from memory.conversation.messages import Json
from memory.core.layers import OWN
from memory.core.left_layers import without_hits, without_layers
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import call_records, layers, shared_members
from memory.stores.sql.rows.scopes import VisibleScopes

c, m = t.conversations.c, t.messages.c
TITLE_CHARACTERS = 400  # of a message that are read for a title
decode = msgspec.json.decode
EXPLAIN = re.compile(
    r"explain_[0-9a-f]{32}([0-7][0-9a-f]{15})"
)  # 128 random bits, and the key of its row


@dataclass(frozen=True, slots=True)
class FoundConversation:
    """One conversation. user: None if it names nobody. Times are Unix times."""

    key: int
    scope_id: int
    name: str
    tenant: str
    user: str | None
    agent: str
    forked_from: str | None
    created_at: float
    updated_at: float
    messages: int


def _select(conn: Connection, limit: int, *which: ColumnElement[bool]) -> list[FoundConversation]:
    counted = (
        select(func.count()).select_from(t.messages).where(m.conversation == c.id).scalar_subquery()
    )
    scope = t.scopes.c
    query = select(
        c.id.label("key"),
        c.scope_id,
        c.name,
        scope.tenant,
        scope.user,
        scope.agent,
        c.forked_from,
        c.created_at,
        c.updated_at,
        counted.label("messages"),
    ).join(t.scopes, scope.id == c.scope_id)
    return [
        FoundConversation(**row._mapping)
        for row in conn.execute(query.where(*which).order_by(c.id.desc()).limit(limit))
    ]


def page(
    conn: Connection, scope_id: int, before: int | None, limit: int
) -> list[FoundConversation]:
    """Return conversations, newest first, before a row key."""
    return _select(
        conn, limit, c.scope_id == scope_id, *([c.id < before] if before is not None else [])
    )


def read_titles(conn: Connection, scope_id: int, names: Sequence[str]) -> dict[str, str]:
    """Return the beginning of what the user said first in each of these conversations."""
    lines = select(c.name, c.id).where(c.scope_id == scope_id, c.name.in_(names))
    first = (
        select(func.substr(m.content, 1, TITLE_CHARACTERS))
        .where(m.conversation == bindparam("line"), m.role == "user", m.content != "")
        .order_by(m.id)
        .limit(1)
    )
    return {
        row.name: conn.execute(first, {"line": row.id}).scalar() or ""
        for row in conn.execute(lines).all()
    }


def find_named(conn: Connection, scope_id: int, name: str) -> FoundConversation | None:
    found = _select(conn, 1, c.scope_id == scope_id, c.name == name)
    return found[0] if found else None


def find_visible(
    conn: Connection,
    reach: VisibleScopes,
    name: str,
    user: str | None = None,
    agent: str | None = None,
) -> list[FoundConversation]:
    """Return at most two conversations with this name that the key may see.

    There are several if users chose the same name.
    """
    more = [
        *([t.scopes.c.user == user] if user is not None else []),
        *([t.scopes.c.agent == agent] if agent is not None else []),
    ]
    return _select(conn, 2, c.name == name, *reach.conditions(), *more)


def remove(conn: Connection, scope_id: int, keys: Sequence[int]) -> None:
    """Remove the conversations' own rows, so that nobody finds them.

    `row_removal` removes the rows that depend on them.
    """
    conn.execute(delete(t.conversations).where(c.scope_id == scope_id, c.id.in_(keys)))
    conn.execute(
        delete(t.jobs).where(t.jobs.c.scope_id == scope_id, t.jobs.c.conversation.in_(keys))
    )


def find_explain_record(conn: Connection, reach: VisibleScopes, ident: str) -> Json | None:
    """Return an explain record that the key may see, with its time and user."""
    named, x = EXPLAIN.fullmatch(ident), t.explains.c
    if named is None:
        return None
    query = (
        select(x.record, t.scopes.c.tenant, t.scopes.c.user, t.scopes.c.agent)
        .join(t.scopes, t.scopes.c.id == x.scope_id)
        .where(x.id == int(named[1], 16), *reach.conditions())
    )
    row = conn.execute(query).first()
    record = (
        next(
            (found for line in row.record.split("\n") if (found := decode(line))["id"] == ident),
            None,
        )
        if row
        else None
    )
    if row is None or record is None:
        called = call_records.find(conn, reach, int(named[1], 16))
        return called if called is not None and called["id"] == ident else None
    if record["injected"]["core"] is None:
        record["injected"]["core"] = (
            conn.execute(
                select(t.epochs.c.core).where(t.epochs.c.id == record["epoch"]["id"])
            ).scalar()
            or ""
        )
    if reach.users is not None and record.get("shared"):
        seen = shared_members.list_seen(conn, Scope(row.tenant, row.user, row.agent, b""))
        read = {one.block.id for one in seen}
        left = [label for label, block in record["shared"].items() if block not in read]
        record = without_layers(record, left)
    if reach.users is not None and record.get("layers"):
        scope = Scope(row.tenant, row.user, row.agent, b"")
        labels = {OWN, *(layer.label for layer in layers.list_layers(conn, scope))}
        left = [label for label in record["layers"]["read"] if label not in labels]
        record = without_hits(record, left)
    return {**record, "user": row.user}
