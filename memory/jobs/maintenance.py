"""The jobs of every gateway: cleaning up after an erasure, and expiry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from memory.ids import clock
from memory.jobs.reindex import begin, reindex_handler
from memory.jobs.worker import LEASE, Handler, Worker
from memory.retrieval.retriever import Retriever
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.index import vectors
from memory.stores.sql.owners import retention
from memory.stores.sql.owners.erasure import expire_unnamed, finish
from memory.stores.sql.rows import (
    job_records,
    message_pieces,
    model_records,
    passage_lifecycle,
    tool_calls,
    tool_results,
)
from memory.stores.sql.rows.jobs import Effect, QueuedJob, delete_dead, enqueue
from memory.stores.sql.rows.skill_block import Align

DAY = 86400.0
# Behind the end of a lease.
AGAIN_SECONDS = 10.0
# Between checks for expired rows.
PERIOD_SECONDS = 3600.0
# Dead jobs are kept for inspection, but not for ever: they may contain a user's messages.
DEAD_DAYS = 30
Embed = Callable[[int, bool], Awaitable[bool]]
Forget = Callable[[int, str | None, Sequence[int] | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days after which rows expire. 0: at the next check."""

    explain: float
    unnamed: float
    inbox: float = 30
    results: float = 7


def erase_handler(db: Database, forget: Forget) -> Handler:
    """Return the job that removes what an interrupted erasure left, and external vectors.

    forget: takes scope row key, kind of rows (None for all), row keys (None for all).
    """

    async def erase(job: QueuedJob) -> Effect | None:
        await finish(db, job)
        for scope_id in job.payload["scopes"]:
            await forget(scope_id, None, None)
        for kind in ("passages", "messages"):
            for scope_id, keys in job.payload.get(kind, {}).items():
                await forget(int(scope_id), kind, keys)
        if not db.is_shared or job.payload.get("again"):
            return None
        # Another worker may have put vectors outside the database meanwhile, within its lease.
        later_job = QueuedJob("erase", {**job.payload, "again": True}, delay=LEASE + AGAIN_SECONDS)
        return lambda conn: enqueue(conn, later_job)

    return erase


def _align_nothing(conn: Connection, after: int) -> int:
    """Align nothing."""
    return 0


def expire_handler(db: Database, ages: RetentionPolicy, align: Align = _align_nothing) -> Handler:
    """Return the job that removes expired rows, also of the application's tables.

    It also starts to rebuild a search index of an earlier version. align: brings a few lists in
    line with the settings, behind a row key; returns the last one, 0 at the end.
    """

    async def expire(_: QueuedJob) -> None:
        now = clock.now()
        if await db.read(fts.is_outdated):
            await db.write(begin)
        else:
            await db.write(fts.note_terms_of_nothing, piece=True)
        for work in (
            lambda conn: retention.expire_retries(conn, now),
            lambda conn: retention.expire_records(conn, now - ages.explain * DAY),
            lambda conn: tool_calls.expire(conn, now - ages.explain * DAY),
            lambda conn: tool_results.expire(conn, now - ages.results * DAY),
            lambda conn: retention.expire_approvals(conn, now - ages.explain * DAY),
            lambda conn: retention.expire_inboxes(conn, now - ages.inbox * DAY),
            lambda conn: message_pieces.expire_orphans(conn, now),
            lambda conn: delete_dead(conn, now - DEAD_DAYS * DAY),
            *(lambda conn, x=x: x.expire(conn, now) for x in db.application_tables),
        ):
            while await db.write(work, piece=True):
                pass
        while await expire_unnamed(db, now - ages.unnamed * DAY, db.application_tables):
            pass
        after = 0
        while after := await db.write(partial(align, after=after), piece=True):
            pass
        records = partial(job_records.expire, before=now - job_records.KEPT_DAYS * DAY)
        for work in (records, model_records.expire):
            while await db.write(work, piece=True):
                pass

    return expire


def embed_handler(embed: Embed) -> Handler:
    """Return the job that makes a scope's missing vectors, queued again until done."""

    async def run(job: QueuedJob) -> Effect | None:
        scope_id = job.scope_id
        all_rows = bool(job.payload.get("whole"))
        if scope_id is None or not await embed(scope_id, all_rows):
            return None
        return lambda conn: enqueue(conn, vectors.job_of(scope_id, whole=all_rows))

    return run


def fade_handler(db: Database) -> Handler:
    """Return the job that sets faint passages aside; they can be restored."""

    async def fade(_: QueuedJob) -> None:
        now = clock.now()
        after_key = 0
        while keys := await db.read(partial(passage_lifecycle.faint, now=now, after=after_key)):
            await db.write(partial(passage_lifecycle.fade, now=now, keys=keys), piece=True)
            after_key = keys[-1]

    return fade


def register(
    worker: Worker,
    db: Database,
    ages: RetentionPolicy,
    retrieval: Retriever,
    align: Align = _align_nothing,
) -> None:
    """Register the jobs of every gateway. align: see `expire_handler`."""
    worker.register("erase", erase_handler(db, retrieval.forget))
    worker.register("embed", embed_handler(retrieval.embed_scope), small=True)
    worker.register("reindex", reindex_handler(db))
    worker.register("expire", expire_handler(db, ages, align), interval=PERIOD_SECONDS)
