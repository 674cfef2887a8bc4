"""What changed last in one memory: blocks that were edited, details that came and went."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from memory.conversation.messages import Json
from memory.search.query import iso
from memory.stores.sql.engine import schema as t

# Of a text before or after a change.
SHOWN_CHARACTERS = 2000
v = t.block_versions.c
b = t.blocks.c
p = t.passages.c


def list_newest(conn: Connection, scope_id: int, limit: int) -> list[Json]:
    """Return the newest changes of a scope, newest last."""
    changes = [
        *_list_edits(conn, scope_id, limit),
        *_list_added(conn, scope_id, limit),
        *_list_removed(conn, scope_id, limit),
    ]
    newest_changes = sorted(changes, key=lambda change: change[0])[-limit:]
    return [{"at": iso(changed_at), **change} for changed_at, change in newest_changes]


def _list_edits(conn: Connection, scope_id: int, limit: int) -> list[tuple[float, Json]]:
    query = (
        select(b.label, v.before, v.after, v.actor, v.undoes, v.created_at)
        .join(t.blocks, b.id == v.block_id)
        .where(v.scope_id == scope_id)
        .order_by(v.id.desc())
        .limit(limit)
    )
    return [
        (
            row.created_at,
            {"kind": "edited" if row.undoes is None else "undone"} | _describe_edit(row),
        )
        for row in conn.execute(query)
    ]


def _describe_edit(row: Any) -> Json:
    return {
        "kind": "edited" if row.undoes is None else "undone",
        "item": f"block {row.label}",
        "before": _beginning_of(row.before),
        "after": _beginning_of(row.after),
        "actor": row.actor,
    }


def _list_added(conn: Connection, scope_id: int, limit: int) -> list[tuple[float, Json]]:
    query = (
        select(p.public_id, p.content, p.actor, p.created_at)
        .where(p.scope_id == scope_id)
        .order_by(p.id.desc())
        .limit(limit)
    )
    return [
        (
            row.created_at,
            {
                "kind": "added",
                "item": row.public_id,
                "before": None,
                "after": _beginning_of(row.content),
                "actor": row.actor,
            },
        )
        for row in conn.execute(query)
    ]


def _list_removed(conn: Connection, scope_id: int, limit: int) -> list[tuple[float, Json]]:
    query = (
        select(p.public_id, p.content, p.deleted_by, p.deleted_at, p.superseded_by)
        .where(p.scope_id == scope_id, p.deleted_at.is_not(None))
        .order_by(p.deleted_at.desc())
        .limit(limit)
    )
    return [
        (
            row.deleted_at,
            {
                "kind": "forgotten" if row.superseded_by is None else "superseded",
                "item": row.public_id,
                "before": _beginning_of(row.content),
                "after": row.superseded_by,
                "actor": row.deleted_by,
            },
        )
        for row in conn.execute(query)
    ]


def _beginning_of(text: str | None) -> str | None:
    if text is None:
        return None
    return text[:SHOWN_CHARACTERS]
