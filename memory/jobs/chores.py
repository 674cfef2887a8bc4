"""The jobs every gateway has: vectors of new passages, what follows an erasure outside the database, what leaves by age."""
from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import Connection

from memory.jobs.queue import Job, enqueue
from memory.jobs.worker import Handler, Worker
from memory.retrieval import Retrieval, VectorIndex
from memory.stores.sql import expiry
from memory.stores.sql.engine import Database

DAY = 86400.0
EVERY = 3600.0  # seconds between looks for what is too old


@dataclass(frozen=True, slots=True)
class Ages:
    """Days after which things leave. 0: at the next look."""

    explain: float
    unnamed: float


def erasing(index: VectorIndex | None) -> Handler:
    """Takes vectors out of the index, where there is one."""

    async def erase(job: Job) -> None:
        if index is None:
            return
        for scope_id in job.payload["scopes"]:
            await index.drop(scope_id)
        for scope_id, passages in job.payload["passages"].items():
            await index.remove(int(scope_id), passages)

    return erase


def embedding(retrieval: Retrieval) -> Handler:
    """Makes the vectors of new passages."""

    async def embed(job: Job) -> None:
        await retrieval.embed_passages(job.payload["passages"])

    return embed


def expiring(db: Database, ages: Ages) -> Handler:
    """Removes what is older than `ages`."""

    async def expire(_: Job) -> None:
        now = time.time()
        await db.write(lambda conn: expiry.expire_records(conn, now - ages.explain * DAY, now))
        while await db.write(lambda conn: _unnamed(conn, now - ages.unnamed * DAY)):
            pass

    return expire


def _unnamed(conn: Connection, before: float) -> int:
    count, passages = expiry.expire_unnamed(conn, before)
    if passages:
        enqueue(conn, Job("erase", {"scopes": [], "passages": {str(k): v for k, v in passages.items()}}))
    return count


def register(worker: Worker, db: Database, ages: Ages, retrieval: Retrieval) -> None:
    """Gives the worker these jobs; `embed` only where passages have vectors."""
    meaning = retrieval.meaning
    worker.register("erase", erasing(meaning.index if meaning else None))
    worker.register("expire", expiring(db, ages), every=EVERY)
    if meaning is not None:
        worker.register("embed", embedding(retrieval))
