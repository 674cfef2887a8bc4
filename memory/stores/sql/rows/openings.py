"""Requests that continued nothing and were never continued: their digests, and which are tasks.

They stand at their conversations, whose second turn takes them away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select, true, update

from memory.conversation.openings import Opening
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.index.index_changes import IndexChange, note_change

n = t.nodes.c
cv = t.conversations.c
# Of the newest, among which some may be repetitions.
READ = 24
NEWEST = (
    select(cv.id, cv.opening, cv.task)
    .where(cv.scope_id == bindparam("scope"), cv.opening.is_not(None))
    .order_by(cv.id.desc())
    .limit(READ)
)


class StoredOpening(NamedTuple):
    """An opening of a scope. conversation: its row key. task: it is marked as one."""

    conversation: int
    opening: Opening
    task: bool


def read(conn: Connection, scope_id: int) -> list[StoredOpening]:
    """Return the newest openings of a scope, newest first."""
    rows = execute(conn, NEWEST, {"scope": scope_id})
    return [StoredOpening(row.id, Opening.unpack(row.opening), row.task) for row in rows]


def mark_tasks(conn: Connection, scope_id: int, conversations: Sequence[int]) -> None:
    """Mark openings as tasks, now that others like them followed: extraction reads none of them.

    Those that were continued meanwhile stay as they are.
    """
    note_change(conn, IndexChange(fts.MESSAGES_INDEX, scope_id))
    conditions = (cv.scope_id == scope_id, cv.id.in_(conversations), cv.opening.is_not(None))
    conn.execute(update(t.conversations).where(*conditions).values(task=true()))
    task_conversations = select(cv.id).where(*conditions, cv.task)
    conn.execute(
        update(t.nodes)
        .where(
            n.scope_id == scope_id, n.conversation.in_(task_conversations), n.unread.is_not(None)
        )
        .values(unread=None)
    )


def let_extraction_read(conn: Connection, turn: int) -> None:
    """Let extraction read the first turn of what was a task, and was continued."""
    conn.execute(update(t.nodes).where(n.id == turn).values(unread=1))
