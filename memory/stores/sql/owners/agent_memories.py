"""The memories that an agent has: of which users, how much, and their erasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, or_, select

from memory.scope import KIND_MARK, owner_key, split_memory_name
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables
from memory.stores.sql.engine.batches import BatchedWork
from memory.stores.sql.owners import erasure
from memory.stores.sql.owners.row_removal import RowsToRemove
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import enqueue

s = t.scopes.c
COUNTED = {"blocks": t.blocks, "passages": t.passages, "conversations": t.conversations}


def list_agents(conn: Connection, tenant: str, user: str) -> list[dict[str, Any]]:
    """Return the agents with which a user has a memory, with counts, by name."""
    is_owned = s.tenant == tenant, s.user == user
    rows = conn.execute(select(s.agent, s.active_at).where(*is_owned).order_by(s.agent)).all()
    counts = {kind: _count(conn, table, tenant, user) for kind, table in COUNTED.items()}
    return [
        {
            **_name_members(row.agent),
            **{kind: counts[kind].get(row.agent, 0) for kind in COUNTED},
            "active_at": row.active_at,
        }
        for row in rows
    ]


def _name_members(memory: str) -> dict[str, str]:
    """Return the agent of a memory, and its project if it has one."""
    agent, project = split_memory_name(memory)
    return {"agent": agent, **({"project": project} if project else {})}


def _count(conn: Connection, table: Any, tenant: str, user: str) -> dict[str, int]:
    query = (
        select(s.agent, func.count())
        .select_from(table.join(t.scopes, s.id == table.c.scope_id))
        .where(s.tenant == tenant, s.user == user)
    )
    if "deleted" in table.c:
        query = query.where(table.c.deleted.is_(False))
    if "deleted_at" in table.c:
        query = query.where(table.c.deleted_at.is_(None))
    return {row[0]: row[1] for row in conn.execute(query.group_by(s.agent))}


async def erase(
    db: BatchedWork,
    secret: bytes,
    agent_name: tuple[str, str],
    application_tables: Sequence[ApplicationTables] = (),
) -> erasure.Counts:
    """Erase all memories of the agent `agent_name` (tenant, name); return removed rows by kind.

    application_tables: the application's tables. What its users' turns began before cannot write
    any more. The memory of its users with other agents stays. Raises StoreUnavailable; a repetition
    continues.
    """
    job = erasure.removal_job()

    def begin(conn: Connection) -> tuple[list[int], int]:
        tenant, agent = agent_name
        # In whichever project.
        is_agents = or_(s.agent == agent, s.agent.endswith(KIND_MARK + agent, autoescape=True))
        rows = conn.execute(select(s.id, s.user).where(s.tenant == tenant, is_agents)).all()
        ids = [row.id for row in rows]
        for row in rows:
            scopes.void(conn, owner_key(secret, tenant, row.user))
            keys = select(t.conversations.c.id).where(t.conversations.c.scope_id == row.id)
            doomed = {row.id: list(conn.execute(keys).scalars())}
            erasure.forget_beside(conn, application_tables, doomed)
        conn.execute(delete(t.scopes).where(s.id.in_(ids)))
        jobs = conn.execute(delete(t.jobs).where(t.jobs.c.scope_id.in_(ids))).rowcount
        job.payload["scopes"] = ids
        if ids:
            enqueue(conn, job)
        return ids, jobs

    ids, jobs = await db.write(begin)
    counts = await erasure.wipe_rows(db, [RowsToRemove(scope_id) for scope_id in ids], job)
    counts["jobs"] += jobs
    return {name: counts[name] for name in erasure.COUNTED}
