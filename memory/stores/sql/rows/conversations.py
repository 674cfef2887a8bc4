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

c = t.conversations.c
m = t.messages.c
# Of a message that are read for a title.
TITLE_CHARACTERS = 400
decode = msgspec.json.decode
# 128 random bits, and the key of its row.
EXPLAIN = re.compile(r"explain_[0-9a-f]{32}([0-7][0-9a-f]{15})")


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


def _select(conn: Connection, limit: int, *clauses: ColumnElement[bool]) -> list[FoundConversation]:
    message_count = (
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
        func.nullif(c.forked_from, c.name).label("forked_from"),
        c.created_at,
        c.updated_at,
        message_count.label("messages"),
    ).join(t.scopes, scope.id == c.scope_id)
    return [
        FoundConversation(**row._mapping)
        for row in conn.execute(query.where(*clauses).order_by(c.id.desc()).limit(limit))
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
    first_message = (
        select(func.substr(m.content, 1, TITLE_CHARACTERS))
        .where(m.conversation == bindparam("line"), m.role == "user", m.content != "")
        .order_by(m.id)
        .limit(1)
    )
    return {
        row.name: conn.execute(first_message, {"line": row.id}).scalar() or ""
        for row in conn.execute(lines).all()
    }


def find_named(conn: Connection, scope_id: int, name: str) -> FoundConversation | None:
    conversations = _select(conn, 1, c.scope_id == scope_id, c.name == name)
    if conversations:
        return conversations[0]
    return None


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
    owner_clauses = [
        *([t.scopes.c.user == user] if user is not None else []),
        *([t.scopes.c.agent == agent] if agent is not None else []),
    ]
    return _select(conn, 2, c.name == name, *reach.conditions(), *owner_clauses)


def remove(conn: Connection, scope_id: int, keys: Sequence[int]) -> None:
    """Remove the conversations' own rows, so that nobody finds them.

    `row_removal` removes the rows that depend on them.
    """
    conn.execute(delete(t.conversations).where(c.scope_id == scope_id, c.id.in_(keys)))
    conn.execute(
        delete(t.jobs).where(t.jobs.c.scope_id == scope_id, t.jobs.c.conversation.in_(keys))
    )


def _record_of_id(lines: str, ident: str) -> Json | None:
    """Return the record of an id among those of a turn, one a line."""
    records = map(decode, lines.split("\n"))
    return next((record for record in records if record["id"] == ident), None)


def find_explain_record(conn: Connection, reach: VisibleScopes, ident: str) -> Json | None:
    """Return an explain record that the key may see, with its time and user."""
    id_match = EXPLAIN.fullmatch(ident)
    explains = t.explains.c
    if id_match is None:
        return None
    query = (
        select(explains.record, t.scopes.c.tenant, t.scopes.c.user, t.scopes.c.agent)
        .join(t.scopes, t.scopes.c.id == explains.scope_id)
        .where(explains.id == int(id_match[1], 16), *reach.conditions())
    )
    row = conn.execute(query).first()
    record = None
    if row is not None:
        record = _record_of_id(row.record, ident)
    if row is None or record is None:
        found_call = call_records.find(conn, reach, int(id_match[1], 16))
        if found_call is None or found_call[0]["id"] != ident:
            return None
        call_record, scope = found_call
        return _without_left(conn, reach, call_record, scope)
    if record["injected"]["core"] is None:
        core = select(t.epochs.c.core).where(t.epochs.c.id == record["epoch"]["id"])
        record["injected"]["core"] = conn.execute(core).scalar() or ""
    record = _without_left(conn, reach, record, Scope(row.tenant, row.user, row.agent, b""))
    return {**record, "user": row.user}


def _without_left(conn: Connection, reach: VisibleScopes, record: Json, scope: Scope) -> Json:
    """Return a record without what its user does not read any more; a trusted key sees all.

    scope: the memory that the record is of.
    """
    if reach.users is None:
        return record
    if record.get("shared"):
        seen_blocks = shared_members.list_seen(conn, scope)
        readable_ids = {seen_block.block.id for seen_block in seen_blocks}
        hidden_labels = [
            label for label, block in record["shared"].items() if block not in readable_ids
        ]
        record = without_layers(record, hidden_labels)
    if record.get("layers"):
        labels = {OWN, *(layer.label for layer in layers.list_layers(conn, scope))}
        hidden_labels = [label for label in record["layers"]["read"] if label not in labels]
        record = without_hits(record, hidden_labels)
    return record
