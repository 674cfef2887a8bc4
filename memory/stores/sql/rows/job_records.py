"""What finished jobs read and kept, and what their filters dropped, with the reason of each.

A secret's text is never stored here. Rows expire, and are erased with their user; what was dropped
of a conversation leaves with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select

from memory.ids import clock, new_key
from memory.search.drop_reasons import MAX_TEXT_CHARACTERS, Drop
from memory.stores.sql.engine import schema as t

KEPT_DAYS = 30.0
# Rows removed in a transaction.
BATCH = 1000
r = t.job_records.c
d = t.dropped.c
m = t.messages.c
s = t.scopes.c


@dataclass(slots=True)
class JobRecord:
    """What a job did, in numbers: turns read, messages shown, facts proposed and kept."""

    kind: str
    read: int = 0
    shown: int = 0
    proposed: int = 0
    kept: int = 0
    drops: list[Drop] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DropQuery:
    """Which drops are listed: newest first, before a row key."""

    since: float | None = None
    until: float | None = None
    reason: str | None = None
    before: int | None = None
    limit: int = 50


def add(conn: Connection, scope_id: int, record: JobRecord) -> None:
    """Store a record with its drops."""
    key = new_key()
    now = clock.now()
    numbers = {name: getattr(record, name) for name in ("read", "shown", "proposed", "kept")}
    row = {"id": key, "scope_id": scope_id, "kind": record.kind, "created_at": now, **numbers}
    conn.execute(insert(t.job_records).values(**row))
    conversations = _conversations_of(conn, [x.message for x in record.drops if x.message])
    rows = [
        {
            "id": new_key(),
            "scope_id": scope_id,
            "conversation": conversations.get(drop.message),
            "job": key,
            "stage": drop.stage,
            "reason": drop.reason,
            "message": drop.message or None,
            "text": "" if drop.reason == "secret" else drop.text[:MAX_TEXT_CHARACTERS],
            "created_at": now,
        }
        for drop in record.drops
    ]
    if rows:
        conn.execute(insert(t.dropped), rows)


def _conversations_of(conn: Connection, messages: Sequence[str]) -> dict[str, int]:
    if not messages:
        return {}
    rows = conn.execute(
        select(m.public_id, m.conversation).where(m.public_id.in_(sorted(set(messages))))
    )
    return {row.public_id: row.conversation for row in rows}


def list_drops(conn: Connection, scopes: Sequence[int], query: DropQuery) -> list[dict[str, Any]]:
    """Return what was dropped, newest first; of a message the beginning of what it says."""
    conditions: list[ColumnElement[bool]] = [d.scope_id.in_(scopes)]
    if query.since is not None:
        conditions.append(d.created_at >= query.since)
    if query.until is not None:
        conditions.append(d.created_at <= query.until)
    if query.reason is not None:
        conditions.append(d.reason == query.reason)
    if query.before is not None:
        conditions.append(d.id < query.before)
    is_source = and_(m.public_id == d.message, m.scope_id == d.scope_id)
    rows = conn.execute(
        select(t.dropped, m.content)
        .select_from(t.dropped.outerjoin(t.messages, is_source))
        .where(*conditions)
        .order_by(d.id.desc())
        .limit(query.limit)
    )
    return [_to_drop(row) for row in rows]


def _to_drop(row: Any) -> dict[str, Any]:
    text = row.text
    if not text and row.stage == "message" and row.reason != "secret":
        text = (row.content or "")[:MAX_TEXT_CHARACTERS]
    return {
        "key": row.id,
        "stage": row.stage,
        "reason": row.reason,
        "text": text,
        "message": row.message,
        "job": row.job,
        "at": row.created_at,
    }


def find_drop(conn: Connection, scopes: Sequence[int], key: int) -> dict[str, Any] | None:
    """Return one drop of these scopes; None if there is none."""
    rows = list_drops(conn, scopes, DropQuery(before=key + 1, limit=1))
    if rows and rows[0]["key"] == key:
        return rows[0]
    return None


def remove_drop(conn: Connection, scope_id: int, key: int) -> None:
    """Remove a drop: it was kept after all."""
    conn.execute(delete(t.dropped).where(d.scope_id == scope_id, d.id == key))


def list_records(
    conn: Connection, scopes: Sequence[int], before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return the records of jobs, newest first, each with what was withheld and dropped."""
    query = select(t.job_records).where(r.scope_id.in_(scopes)).order_by(r.id.desc()).limit(limit)
    rows = conn.execute(query.where(r.id < before) if before is not None else query).all()
    drops: dict[int, list[Any]] = {row.id: [] for row in rows}
    scope_drops = (
        select(t.dropped).where(d.scope_id.in_(scopes), d.job.in_(list(drops))).order_by(d.id)
    )
    for drop in conn.execute(scope_drops):
        drops[drop.job].append(drop)
    return [_to_record(row, drops[row.id]) for row in rows]


def _to_record(row: Any, drops: Sequence[Any]) -> dict[str, Any]:
    messages = [x for x in drops if x.stage == "message"]
    facts = [x for x in drops if x.stage == "fact"]
    return {
        "key": row.id,
        "kind": row.kind,
        "at": row.created_at,
        "read": row.read,
        "shown": row.shown,
        "withheld": [{"message": x.message, "reason": x.reason} for x in messages],
        "proposed": row.proposed,
        "kept": row.kept,
        "dropped": [{"text": x.text, "reason": x.reason, "message": x.message} for x in facts],
    }


def expire(conn: Connection, before: float) -> int:
    """Remove so many rows made before `before`, or whose user is gone.

    Returns their number; call again until it is 0.
    """
    removed_count = 0
    for table in (t.dropped, t.job_records):
        columns = table.c
        is_over = or_(columns.created_at < before, columns.scope_id.not_in(select(s.id)))
        expired_ids = select(columns.id).where(is_over).limit(BATCH)
        removed_count += conn.execute(delete(table).where(columns.id.in_(expired_ids))).rowcount
    return removed_count
