"""What filters dropped, from outside: list it, see the records of jobs, and keep it after all."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from memory.errors import NotFound
from memory.management.reading import read
from memory.scope import Scope
from memory.search.drop_reasons import REASONS
from memory.service import Memory
from memory.stores.sql.rows import job_records, scopes
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows.job_records import DropQuery
from memory.stores.sql.rows.management_context import ManagementActor, touch_scope

__all__ = ["REASONS", "DropQuery", "keep_drop", "list_drops", "list_records"]


async def list_drops(memory: Memory, scope: Scope, query: DropQuery) -> list[dict[str, Any]]:
    """List what was dropped of what a user said, newest first. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[dict[str, Any]]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return job_records.list_drops(conn, [scope_id], query)

    return await read(memory, work)


async def list_records(
    memory: Memory, scope: Scope, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List what finished jobs read, kept and dropped, newest first. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[dict[str, Any]]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return job_records.list_records(conn, [scope_id], before, limit)

    return await read(memory, work)


async def keep_drop(memory: Memory, actor: ManagementActor, key: int) -> list[dict[str, Any]]:
    """Store what was dropped as a passage after all; return the passages.

    Raises NotFound, also for a secret, of which no text is stored; StoreUnavailable.
    """

    def work(conn: Connection) -> list[dict[str, Any]]:
        scope_id = touch_scope(conn, actor.scope)
        drop = job_records.find_drop(conn, [scope_id], key)
        if drop is None or not drop["text"]:
            raise NotFound("There is nothing here to keep. A secret's text is never stored.")
        actor_name = actor.source.actor
        new_passage = passage_rows.NewPassage(
            drop["text"], actor=actor_name, source=drop["message"]
        )
        passages = passage_rows.add(conn, scope_id, new_passage)[0]
        job_records.remove_drop(conn, scope_id, key)
        return list(passages)

    return await memory.db.write(work, lock=actor.lock)
