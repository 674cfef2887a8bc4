"""What expires: explain records, unnamed users' memory, and data for retries."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, delete, select, update

from memory.ids import key_at
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import agent_inbox, approvals, call_records
from memory.stores.sql.rows import conversations as conversation_rows

expire_approvals = approvals.expire
expire_inboxes = agent_inbox.expire
# Conversations removed at once.
BATCH = 100
# Rows a transaction, so as not to block the writer for long.
RECORDS = 1000
# Seconds; a retry comes within ten minutes.
RETRY_AGE = 86400.0


def expire_retries(conn: Connection, now: float) -> int:
    """Remove so many rows' data for retries that are a day old.

    Returns the number of rows; call again until it is 0.
    """
    nodes = t.nodes.c
    old_nodes = (
        select(nodes.id)
        .where(nodes.request.is_not(None), nodes.id < key_at(now - RETRY_AGE))
        .limit(RECORDS)
    )
    is_late = update(t.nodes).where(nodes.id.in_(old_nodes), nodes.at < now - RETRY_AGE)
    return conn.execute(is_late.values(request=None, rounds=None)).rowcount


def expire_records(conn: Connection, before: float) -> int:
    """Remove so many explain records made before `before`.

    Returns their number; call again until it is 0.
    """
    explains = t.explains.c
    expired_ids = (
        select(explains.id)
        .where(explains.id < key_at(before), explains.created_at < before)
        .limit(RECORDS)
    )
    removed_count = conn.execute(delete(t.explains).where(explains.id.in_(expired_ids))).rowcount
    return removed_count or call_records.expire(conn, before)


def expire_unnamed(
    conn: Connection, before: float, begin: Callable[[dict[int, list[int]]], None]
) -> dict[int, list[int]]:
    """Remove a batch of unnamed users' conversations last used before `before`.

    begin: is told their row keys by scope while they are still there. Returns them, for
    `row_removal`; call again until there are none.
    """
    conversations = t.conversations.c
    query = (
        select(conversations.id, conversations.scope_id)
        .join(t.scopes, t.scopes.c.id == conversations.scope_id)
        .where(t.scopes.c.user.is_(None), conversations.updated_at < before)
    )
    by_scope: dict[int, list[int]] = {}
    for row in conn.execute(query.limit(BATCH)).all():
        by_scope.setdefault(row.scope_id, []).append(row.id)
    begin(by_scope)
    for scope_id, keys in by_scope.items():
        conversation_rows.remove(conn, scope_id, keys)
    return by_scope
