"""Explain records of memory tools that were called outside a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, delete, insert, select

from memory.conversation.messages import Json
from memory.ids import clock, key_at
from memory.scope import Scope, home_of, memory_name
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.scopes import VisibleScopes

# Rows removed in a transaction.
BATCH = 1000
r = t.call_records.c


@dataclass(frozen=True, slots=True)
class MemoryCallRecord:
    """One call. seen: the versions of blocks that its reader has been shown, this call included."""

    key: int
    scope_id: int
    reader: bytes
    seen: Mapping[str, int]
    record: Json


def add(conn: Connection, call: MemoryCallRecord) -> None:
    """Store the record of a call."""
    now = clock.now()
    record = msgspec.json.encode({**call.record, "created_at": now}).decode()
    row = {
        "id": call.key,
        "scope_id": call.scope_id,
        "reader": call.reader,
        "seen": msgspec.json.encode(call.seen).decode(),
        "record": record,
        "created_at": now,
    }
    conn.execute(insert(t.call_records).values(**row))


def seen_by(conn: Connection, scope_id: int, reader: bytes) -> dict[str, int]:
    """Return the versions of the blocks that a reader has been shown, by label."""
    newest_record = (
        select(r.seen)
        .where(r.scope_id == scope_id, r.reader == reader)
        .order_by(r.id.desc())
        .limit(1)
    )
    seen_versions = conn.execute(newest_record).scalar()
    if seen_versions is None:
        return {}
    return dict(msgspec.json.decode(seen_versions))


def find(conn: Connection, reach: VisibleScopes, key: int) -> tuple[Json, Scope] | None:
    """Return a record that a key may see, with its user, and whose memory was called."""
    query = (
        select(r.record, t.scopes.c.tenant, t.scopes.c.user, t.scopes.c.agent)
        .join(t.scopes, t.scopes.c.id == r.scope_id)
        .where(r.id == key, *reach.conditions())
    )
    row = conn.execute(query).first()
    if row is None:
        return None
    record = {**msgspec.json.decode(row.record), "user": row.user}
    if record.get("home") != "agent":
        return record, Scope(row.tenant, row.user, row.agent, b"")
    # The memory of an agent, whose record is that of the user who called it.
    agent = record["agent"]
    memory = memory_name(agent, record.get("project", ""))
    return record, Scope(row.tenant, home_of(agent), memory, b"")


def expire(conn: Connection, before: float) -> int:
    """Remove so many records made before `before`.

    Returns their number; call again until it is 0.
    """
    expired_ids = select(r.id).where(r.id < key_at(before)).limit(BATCH)
    return conn.execute(delete(t.call_records).where(r.id.in_(expired_ids))).rowcount
