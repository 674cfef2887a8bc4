"""Reflections from outside: run now, their proposals listed, applied, discarded, undone."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from memory.errors import MemoryChanged, NotFound
from memory.jobs import heartbeat
from memory.jobs.heartbeat import find_model
from memory.jobs.reflection import FindPlan, run_job
from memory.management.reading import read
from memory.scope import Scope, split_memory_name
from memory.service import Memory
from memory.stores.sql.rows import reflections as rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.jobs import enqueue
from memory.stores.sql.rows.management_context import ManagementActor, touch_scope
from memory.stores.sql.rows.reflections import Decision, StoredReflection

__all__ = ["Decision", "StoredReflection", "decide", "list_reflections", "queue_due", "run_now"]


async def queue_due(memory: Memory, find_plan: FindPlan) -> int:
    """Queue the reflections that are due by the clock; return their number.

    Raises StoreUnavailable.
    """
    return await heartbeat.queue_due(memory.db, find_plan)


async def run_now(memory: Memory, actor: ManagementActor) -> None:
    """Queue a run. Raises NotFound for a user about whom nothing is stored, StoreUnavailable."""

    def work(conn: Connection) -> None:
        scope_id = scopes.find(conn, actor.scope)
        if scope_id is None:
            raise NotFound(f"nothing is stored about the user {actor.scope.user!r}")
        project = split_memory_name(actor.scope.agent)[1]
        enqueue(conn, run_job(scope_id, find_model(conn, scope_id), project))

    await memory.db.write(work, small=True, lock=actor.lock)


async def list_reflections(
    memory: Memory, scope: Scope, after: tuple[float, str] | None, limit: int
) -> list[StoredReflection]:
    """List proposals, newest first, behind a place. Raises StoreUnavailable."""
    return await read(
        memory, lambda conn: rows.list_page(conn, scopes.find(conn, scope), after, limit)
    )


async def decide(
    memory: Memory, actor: ManagementActor, ident: str, decision: Decision
) -> StoredReflection:
    """Apply, discard or undo a proposal. Raises NotFound, Conflict, MemoryChanged.

    One that cannot be applied, as the memory changed, is noted as a conflict.
    """
    source = replace(actor.source, actor="undo" if decision == "undo" else actor.source.actor)

    def work(conn: Connection) -> StoredReflection:
        scope_id = scopes.find(conn, actor.scope)
        rows.find(conn, scope_id, ident)
        block_set = BlockSet(touch_scope(conn, actor.scope), actor.defaults)
        return rows.decide(conn, block_set, ident, decision, source)

    try:
        return await memory.db.write(work, lock=actor.lock)
    except MemoryChanged:
        if decision == "apply":
            note = lambda conn: rows.note_conflict(conn, ident)  # noqa: E731
            await memory.db.write(note, small=True, lock=actor.lock)
        raise
