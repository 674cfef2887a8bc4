"""What becomes of passages in the background: facts kept with their source, superseded, left to fade, brought back.

Nothing is removed here: a passage that is set aside is out of every search, and `restore` brings it back.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, select, update

from memory.jobs.queue import enqueue
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import schema as t
from memory.stores.sql import vectors
from memory.stores.sql.messages import Query
from memory.strength import LIMIT, RATES

p, m = t.passages.c, t.messages.c
NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Said:
    """A message of one turn. id: its public one."""

    id: str
    role: str
    content: str
    at: float


def said_in(conn: Connection, scope_id: int, node: int) -> list[Said]:
    """What user and assistant said in the turn, in order; no tool's output, nothing of an earlier turn."""
    query = select(m.public_id, m.role, m.content, m.created_at).where(
        m.scope_id == scope_id, m.node == node, m.role.in_(("user", "assistant")), m.source.in_(("chat", "answer")), m.content != "").order_by(m.id)
    return [Said(r.public_id, r.role, r.content, r.created_at) for r in conn.execute(query)]


def neighbours(conn: Connection, scope_id: int, text: str, limit: int = NEIGHBOURS) -> list[dict[str, Any]]:
    """Passages that share words with the text."""
    return passage_rows.search(conn, scope_id, passage_rows.Filter(Query(text[:2000], limit=limit)))


def set_aside(conn: Connection, scope_id: int, ident: str, actor: str, by: str | None = None) -> bool:
    """Takes a passage out of every search. by: what stands in its place. Returns whether it was there."""
    there = (p.scope_id == scope_id) & (p.public_id == ident) & p.deleted_at.is_(None)
    return conn.execute(update(t.passages).where(there).values(deleted_at=time.time(), deleted_by=actor, superseded_by=by)).rowcount > 0


def restore(conn: Connection, scope_id: int, ident: str) -> dict[str, Any] | None:
    """Brings a passage back that was set aside; None when there is none of that name. It counts as used now, so that it does not fade at once."""
    there = (p.scope_id == scope_id) & (p.public_id == ident)
    values = {"deleted_at": None, "deleted_by": None, "superseded_by": None, "used_at": time.time()}
    if conn.execute(update(t.passages).where(there, p.deleted_at.is_not(None)).values(**values)).rowcount:
        enqueue(conn, vectors.job_of(scope_id))
    return passage_rows.get(conn, [scope_id], ident)


def aside(conn: Connection, scope_id: int, before: int | None, limit: int) -> list[dict[str, Any]]:
    """Passages that were set aside, newest first, before a row key."""
    query = select(t.passages).where(p.scope_id == scope_id, p.deleted_at.is_not(None)).order_by(p.id.desc()).limit(limit)
    return [passage_rows.shown(r) for r in conn.execute(query.where(p.id < before) if before is not None else query)]


def fade(conn: Connection, now: float, limit: int = 500) -> int:
    """Sets passages aside that have grown faint, at most so many. Returns how many."""
    rate = case(*((p.type == kind, r) for kind, r in RATES.items()), else_=RATES["fact"])
    hours = (now - func.coalesce(p.used_at, p.created_at)) / 3600.0
    faint = select(p.id).where(p.deleted_at.is_(None), rate * hours * (1.0 - p.importance) > LIMIT * (1 + p.uses)).limit(limit)
    return conn.execute(update(t.passages).where(p.id.in_(faint)).values(deleted_at=now, deleted_by="cleanup")).rowcount


def used(conn: Connection, keys: Sequence[int]) -> None:
    """Counts passages as found just now: what is used fades later."""
    if keys:
        conn.execute(update(t.passages).where(p.id.in_(keys)).values(uses=p.uses + 1, used_at=time.time()))
