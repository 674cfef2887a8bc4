"""The jobs every gateway has: what follows an erasure outside the database, and what leaves by age."""
from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from memory.jobs.queue import Job, buried, enqueue
from memory.jobs.reindex import begin, reindexing
from memory.jobs.worker import Handler, Worker
from memory.stores.sql import expiry, facts, index, usage
from memory.stores.sql.engine import Database

DAY = 86400.0
EVERY = 3600.0  # seconds between looks for what is too old
DEAD_DAYS = 30  # a dead job is kept for a person to look at, not for ever: it may hold a user's words
USAGE_DAYS = 400  # a year to compare with, and a month to look at it
Embed = Callable[[int, bool], Awaitable[None]]
Forget = Callable[[int, Sequence[int] | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ages:
    """Days after which things leave. 0: at the next look."""

    explain: float
    unnamed: float


def erasing(forget: Forget | None) -> Handler:
    """Takes vectors out of an external index. forget: (scope row key, passage row keys, None for all of the scope); None:
    there is no such index."""

    async def erase(job: Job) -> None:
        if forget is None:
            return
        for scope_id in job.payload["scopes"]:
            await forget(scope_id, None)
        for scope_id, passages in job.payload["passages"].items():
            await forget(int(scope_id), passages)

    return erase


def expiring(db: Database, ages: Ages) -> Handler:
    """Removes what is older than `ages`, and usage records after `USAGE_DAYS`; has a search index of an earlier version made anew."""

    async def expire(_: Job) -> None:
        now = time.time()
        if await db.read(index.outdated):
            await db.write(begin)
        await db.write(lambda conn: expiry.expire_records(conn, now - ages.explain * DAY, now))
        await db.write(lambda conn: buried(conn, now - DEAD_DAYS * DAY))
        while await db.write(lambda conn: _unnamed(conn, now - ages.unnamed * DAY)):
            pass
        while await db.write(lambda conn: usage.older(conn, now - USAGE_DAYS * DAY)):
            pass

    return expire


def _unnamed(conn: Connection, before: float) -> int:
    count, passages = expiry.expire_unnamed(conn, before)
    if passages:
        enqueue(conn, Job("erase", {"scopes": [], "passages": {str(k): v for k, v in passages.items()}}))
    return count


def embedding(embed: Embed | None) -> Handler:
    """Makes the vectors that a scope lacks; None: there is no embedder."""

    async def run(job: Job) -> None:
        if embed is not None:
            await embed(job.payload["scope"], bool(job.payload.get("whole")))

    return run


def fading(db: Database) -> Handler:
    """Sets aside what has grown faint; it can be brought back."""

    async def fade(_: Job) -> None:
        while await db.write(lambda conn: facts.fade(conn, time.time())):
            pass

    return fade


def register(worker: Worker, db: Database, ages: Ages, forget: Forget | None = None, embed: Embed | None = None) -> None:
    """Gives the worker the jobs that every gateway has."""
    worker.register("erase", erasing(forget))
    worker.register("embed", embedding(embed))
    worker.register("reindex", reindexing(db))
    worker.register("expire", expiring(db, ages), every=EVERY)
