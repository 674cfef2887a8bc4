"""Rebuilds the keyword index from the rows, page by page, each in its own transaction.

Searches and turns continue meanwhile, and an interrupted rebuild resumes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, func, select, union

from memory.jobs.worker import Handler
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import ROWS_PER_STATEMENT, WriterShare
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.index import vectors
from memory.stores.sql.rows.index_documents import READERS
from memory.stores.sql.rows.jobs import QueuedJob, enqueue

# Most rows of a transaction, for which a concurrent turn has to wait.
PAGE = 200
# Budget of one job; remaining work is queued again.
JOB_SECONDS = 60.0
KINDS = (*READERS, *(f"swept {name}" for name in READERS), "done")


@dataclass(frozen=True, slots=True)
class ReindexProgress:
    """The progress of a rebuild.

    kind: one of `KINDS`, in their order: first rows are indexed, then documents without a row are
    removed. after: the last row key of that kind that is done.
    """

    kind: str = KINDS[0]
    after: int = 0


def step(conn: Connection, progress: ReindexProgress) -> tuple[ReindexProgress, int]:
    """Process one page. Returns the next progress, and the number of rows of this one."""
    if progress.kind == "done":
        fts.note_terms(conn)
        return ReindexProgress("done"), 0
    sweeping, _, kind = progress.kind.rpartition(" ")
    share = WriterShare(PAGE)
    after_key = progress.after
    row_count = 0
    while True:
        keys = (_swept if sweeping else _put_documents)(conn, kind, after_key)
        row_count += len(keys)
        if not keys:
            following = KINDS[KINDS.index(progress.kind) + 1]
            if following == "done":
                fts.note_terms(conn)
            return ReindexProgress(following), row_count
        after_key = keys[-1]
        if share.count_row(len(keys)):
            return ReindexProgress(progress.kind, after_key), row_count


def _put_documents(conn: Connection, kind: str, after_key: int) -> Sequence[int]:
    docs = READERS[kind](conn, after_key, min(ROWS_PER_STATEMENT, PAGE))
    fts.reindex_documents(conn, f"{kind}_fts", docs)
    return [key for key, _ in docs]


def _swept(conn: Connection, kind: str, after_key: int) -> Sequence[int]:
    return fts.delete_orphans(conn, f"{kind}_fts", kind, after_key)


def sizes(conn: Connection) -> dict[str, int]:
    """Return the number of rows of each kind."""
    tables = {kind: t.metadata.tables[kind] for kind in READERS}
    return {
        kind: int(conn.execute(select(func.count()).select_from(table)).scalar() or 0)
        for kind, table in tables.items()
    }


async def schedule_embedding(db: Database) -> int:
    """Queue a check of every scope's vectors, including texts that were refused.

    Returns the number of scopes.
    """
    while await db.write(vectors.ask_again, piece=True):
        pass
    scopes = await db.read(
        lambda conn: [
            *conn.execute(
                union(select(t.passages.c.scope_id), select(t.messages.c.scope_id))
            ).scalars()
        ]
    )
    for i in range(0, len(scopes), PAGE):
        await db.write(partial(_queue_checks, scopes=scopes[i : i + PAGE]), piece=True)
    return len(scopes)


def _queue_checks(conn: Connection, scopes: Sequence[int]) -> None:
    for scope_id in scopes:
        enqueue(conn, vectors.job_of(scope_id, whole=True))


def count_unembedded_scopes(conn: Connection) -> dict[str, int]:
    """Return how many scopes' vectors are still to be checked, by state of the job.

    Jobs queued by turns do not count.
    """
    job_columns = t.jobs.c
    return {
        row.state: row.n
        for row in conn.execute(
            select(job_columns.state, func.count().label("n"))
            .where(job_columns.kind == "embed", job_columns.payload.contains('"whole"'))
            .group_by(job_columns.state)
        )
    }


def begin(conn: Connection, progress: ReindexProgress | None = None) -> None:
    """Queue a rebuild of the index."""
    progress = progress or ReindexProgress()
    enqueue(
        conn,
        QueuedJob("reindex", {"kind": progress.kind, "after": progress.after}, dedupe="reindex"),
    )


def reindex_handler(db: Database) -> Handler:
    """Return the job that continues for some seconds and queues the rest."""

    async def run(job: QueuedJob) -> None:
        progress = ReindexProgress(**job.payload)
        deadline = time.monotonic() + JOB_SECONDS
        while True:
            progress, _ = await db.write(partial(step, progress=progress), piece=True)
            if progress.kind == "done" or time.monotonic() > deadline:
                break
        if progress.kind != "done":
            await db.write(lambda conn: begin(conn, progress))

    return run
