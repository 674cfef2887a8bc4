"""What leaves by age: explain records, memory that names nobody, and retries nobody will make any more."""
from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from memory.ids import key_at
from memory.stores.sql import conversations as conversation_rows
from memory.stores.sql import schema as t

BATCH = 100  # conversations a transaction: the one writer is not kept long
RETRY_AGE = 86400.0  # seconds; a retry comes within ten minutes


def expire_records(conn: Connection, before: float, now: float) -> int:
    """Removes explain records made before `before`, and what lets a day-old request be retried. Returns the explain records removed."""
    n = t.nodes.c
    conn.execute(update(t.nodes).where(n.request.is_not(None), n.at < now - RETRY_AGE).values(request=None, rounds=None))
    x = t.explains.c
    return conn.execute(delete(t.explains).where(x.id < key_at(before), x.created_at < before)).rowcount


def expire_unnamed(conn: Connection, before: float) -> tuple[int, dict[int, list[int]]]:
    """Removes a batch of conversations that name nobody and were last used before `before`, with their memory.

    Returns (how many, the row keys of the passages that went, by scope); call again until it is 0.
    """
    c = t.conversations.c
    query = select(c.id, c.scope_id).join(t.scopes, t.scopes.c.id == c.scope_id).where(t.scopes.c.user.is_(None), c.updated_at < before)
    by_scope: dict[int, list[int]] = {}
    for row in conn.execute(query.limit(BATCH)).all():
        by_scope.setdefault(row.scope_id, []).append(row.id)
    passages = {scope_id: conversation_rows.remove(conn, scope_id, keys) for scope_id, keys in by_scope.items()}
    return sum(map(len, by_scope.values())), {k: v for k, v in passages.items() if v}
