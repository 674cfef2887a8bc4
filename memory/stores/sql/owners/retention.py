"""What expires: explain records, unnamed users' memory, and data for retries."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, delete, select, update

from memory.ids import key_at
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import agent_inbox, approvals, call_records
from memory.stores.sql.rows import conversations as conversation_rows

expire_approvals, expire_inboxes = approvals.expire, agent_inbox.expire
BATCH = 100  # conversations removed at once
RECORDS = 1000  # rows a transaction, so as not to block the writer for long
RETRY_AGE = 86400.0  # seconds; a retry comes within ten minutes


def expire_retries(conn: Connection, now: float) -> int:
    """Remove so many rows' data for retries that are a day old.

    Returns the number of rows; call again until it is 0.
    """
    n = t.nodes.c
    old = select(n.id).where(n.request.is_not(None), n.id < key_at(now - RETRY_AGE)).limit(RECORDS)
    late = update(t.nodes).where(n.id.in_(old), n.at < now - RETRY_AGE)
    return conn.execute(late.values(request=None, rounds=None)).rowcount


def expire_records(conn: Connection, before: float) -> int:
    """Remove so many explain records made before `before`.

    Returns their number; call again until it is 0.
    """
    x = t.explains.c
    old = select(x.id).where(x.id < key_at(before), x.created_at < before).limit(RECORDS)
    removed = conn.execute(delete(t.explains).where(x.id.in_(old))).rowcount
    return removed or call_records.expire(conn, before)


def expire_unnamed(
    conn: Connection, before: float, begin: Callable[[dict[int, list[int]]], None]
) -> dict[int, list[int]]:
    """Remove a batch of unnamed users' conversations last used before `before`.

    begin: is told their row keys by scope while they are still there. Returns them, for
    `row_removal`; call again until there are none.
    """
    c = t.conversations.c
    query = (
        select(c.id, c.scope_id)
        .join(t.scopes, t.scopes.c.id == c.scope_id)
        .where(t.scopes.c.user.is_(None), c.updated_at < before)
    )
    by_scope: dict[int, list[int]] = {}
    for row in conn.execute(query.limit(BATCH)).all():
        by_scope.setdefault(row.scope_id, []).append(row.id)
    begin(by_scope)
    for scope_id, keys in by_scope.items():
        conversation_rows.remove(conn, scope_id, keys)
    return by_scope
