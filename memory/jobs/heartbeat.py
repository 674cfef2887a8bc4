"""Queues reflections by the clock: for each memory that was used since its last run.

After an outage a memory gets one run, not one for each time that was missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from sqlalchemy import Connection, func, select

from memory.ids import clock
from memory.jobs.reflection import FindPlan, ReflectionPlan, run_job
from memory.scope import split_memory_name
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.skill_tables import reflection_runs
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import policies, reflections
from memory.stores.sql.rows.jobs import enqueue

# Memories that are looked at together.
PAGE = 200
# Of no scope: the row that says when the clock was first looked at.
BEGAN = 0
s = t.scopes.c
x = reflection_runs.c


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """A memory that was used since its last run. ran_at: None where it had none."""

    scope_id: int
    tenant: str
    agent: str
    zone: str
    ran_at: float | None
    created_at: float


def is_due(plan: ReflectionPlan, zone: str, since: float, now: float) -> bool:
    """Tell whether the clock of a plan struck between two Unix times. zone: of the user."""
    if not plan.cron or since >= now:
        return False
    # Imported only where a clock is set.
    from cronsim import CronSim

    place = _find_zone(zone or plan.zone)
    try:
        next_time = next(CronSim(plan.cron, datetime.fromtimestamp(since, place)))
    except StopIteration:
        # Such as on 30 February.
        return False
    return next_time.timestamp() <= now


def _find_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    return ZoneInfo(name)


async def queue_due(db: Database, find_plan: FindPlan) -> int:
    """Queue the reflections that are due; return their number. Raises StoreUnavailable."""
    now = clock.now()
    began = await db.read(_find_beginning)
    if began is None:
        await db.write(
            lambda conn: reflections.note_run(conn, BEGAN, None, now), small=True, lock=NOTHING
        )
        return 0
    count = 0
    after_key = 0
    while used := await db.read(partial(_list_used, after_key=after_key)):
        due = [memory for memory in used if await _is_memory_due(memory, find_plan, began, now)]
        for memory in due:
            queue = partial(_queue, memory=memory, now=now)
            count += await db.write(queue, small=True, lock=NOTHING)
        after_key = used[-1].scope_id
    return count


async def _is_memory_due(memory: UsedMemory, find_plan: FindPlan, began: float, now: float) -> bool:
    plan = await find_plan(memory.tenant, split_memory_name(memory.agent)[0])
    if memory.ran_at:
        since = memory.ran_at
    else:
        since = max(memory.created_at, began)
    return is_due(plan, memory.zone, since, now)


def _find_beginning(conn: Connection) -> float | None:
    query = select(x.ran_at).where(x.scope_id == BEGAN)
    return conn.execute(query).scalar()


def _list_used(conn: Connection, after_key: int) -> Sequence[UsedMemory]:
    """Return memories that were used since their last run, in the order of their keys."""
    query = (
        select(s.id, s.tenant, s.user, s.agent, s.created_at, x.ran_at)
        .join(reflection_runs, x.scope_id == s.id, isouter=True)
        .where(s.id > after_key, s.user.is_not(None), s.active_at > func.coalesce(x.ran_at, 0.0))
        .order_by(s.id)
        .limit(PAGE)
    )
    return [
        UsedMemory(
            row.id,
            row.tenant,
            row.agent,
            policies.find(conn, (row.tenant, row.user)).timezone,
            row.ran_at,
            row.created_at,
        )
        for row in conn.execute(query).all()
    ]


def _queue(conn: Connection, memory: UsedMemory, now: float) -> bool:
    """Queue a memory's run, unless another worker did."""
    if not reflections.note_run(conn, memory.scope_id, memory.ran_at, now):
        return False
    project = split_memory_name(memory.agent)[1]
    enqueue(conn, run_job(memory.scope_id, find_model(conn, memory.scope_id), project))
    return True


def find_model(conn: Connection, scope_id: int) -> str:
    """Return the model that a memory was last used with; "" where that is not known."""
    explains: Any = t.explains.c
    newest = select(explains.record).where(explains.scope_id == scope_id)
    record = conn.execute(newest.order_by(explains.id.desc()).limit(1)).scalar()
    if not record:
        return ""
    return str(msgspec.json.decode(record.split("\n")[-1]).get("model") or "")
