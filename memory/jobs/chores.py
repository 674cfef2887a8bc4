"""The jobs every gateway has: what follows an erasure outside the database, and what leaves by age."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from memory.erasing import expire_unnamed, finish
from memory.jobs.queue import Effect, Job, buried, enqueue
from memory.jobs.reindex import begin, reindexing
from memory.jobs.worker import Handler, Worker
from memory.retrieval import Retrieval
from memory.stores.sql import expiry, facts, index, usage, vectors
from memory.stores.sql.engine import Database

DAY = 86400.0
EVERY = 3600.0  # seconds between looks for what is too old
DEAD_DAYS = (
    30  # a dead job is kept for a person to look at, not for ever: it may hold a user's words
)
USAGE_DAYS = 400  # a year to compare with, and a month to look at it
Embed = Callable[[int, bool], Awaitable[bool]]
Forget = Callable[[int, str | None, Sequence[int] | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ages:
    """Days after which things leave. 0: at the next look."""

    explain: float
    unnamed: float


def erasing(db: Database, forget: Forget) -> Handler:
    """Takes out the rows that an interrupted erasure left, and vectors from an external index. forget: (scope row key, kind of rows,
    None for all kinds, row keys, None for all)."""

    async def erase(job: Job) -> None:
        await finish(db, job)
        for scope_id in job.payload["scopes"]:
            await forget(scope_id, None, None)
        for kind in ("passages", "messages"):
            for scope_id, keys in job.payload.get(kind, {}).items():
                await forget(int(scope_id), kind, keys)

    return erase


def expiring(db: Database, ages: Ages) -> Handler:
    """Removes what is older than `ages`, and usage records after `USAGE_DAYS`; has a search index of an earlier version made anew."""

    async def expire(_: Job) -> None:
        now = time.time()
        if await db.read(index.outdated):
            await db.write(begin)
        for work in (
            lambda conn: expiry.expire_retries(conn, now),
            lambda conn: expiry.expire_records(conn, now - ages.explain * DAY),
            lambda conn: buried(conn, now - DEAD_DAYS * DAY),
            lambda conn: usage.older(conn, now - USAGE_DAYS * DAY),
        ):
            while await db.write(work, piece=True):
                pass
        while await expire_unnamed(db, now - ages.unnamed * DAY):
            pass

    return expire


def embedding(embed: Embed) -> Handler:
    """Makes the vectors that a scope lacks; what takes longer than one job is the next one's."""

    async def run(job: Job) -> Effect | None:
        scope_id, whole = job.scope_id, bool(job.payload.get("whole"))
        if scope_id is None or not await embed(scope_id, whole):
            return None
        return lambda conn: enqueue(conn, vectors.job_of(scope_id, whole=whole))

    return run


def fading(db: Database) -> Handler:
    """Sets aside what has grown faint; it can be brought back."""

    async def fade(_: Job) -> None:
        now, after = time.time(), 0
        while keys := await db.read(lambda conn, a=after: facts.faint(conn, now, a)):  # type: ignore[misc]
            await db.write(lambda conn, k=keys: facts.fade(conn, now, k), piece=True)  # type: ignore[misc]
            after = keys[-1]

    return fade


def register(worker: Worker, db: Database, ages: Ages, retrieval: Retrieval) -> None:
    """Gives the worker the jobs that every gateway has."""
    worker.register("erase", erasing(db, retrieval.forget))
    worker.register("embed", embedding(retrieval.embed_scope), small=True)
    worker.register("reindex", reindexing(db))
    worker.register("expire", expiring(db, ages), every=EVERY)
