"""The keyword index made anew from the rows, page by page, each a transaction of its own: searches
and turns go on meanwhile, and what was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, func, select, union

from memory.jobs.worker import Handler
from memory.stores.sql import fts, message_index, vectors
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import schema as t
from memory.stores.sql.batches import ROWS_PER_STATEMENT, WriterShare
from memory.stores.sql.database import Database
from memory.stores.sql.jobs import QueuedJob, enqueue

PAGE = 200  # rows a transaction at most: a turn that writes meanwhile waits for no more
JOB_SECONDS = 60.0  # of one background job; the rest is the next one's
KINDS = ("messages", "passages", "swept messages", "swept passages", "done")


@dataclass(frozen=True, slots=True)
class ReindexProgress:
    """How far it is.

    kind: one of `KINDS`, in their order: what is put in anew, then what has documents without a row
    taken out. after: the last row key of that kind that is done.
    """

    kind: str = KINDS[0]
    after: int = 0


def step(conn: Connection, mark: ReindexProgress) -> tuple[ReindexProgress, int]:
    """Return one piece. Returns the next mark, and how many rows this one was."""
    if mark.kind == "done" or conn.dialect.name != "sqlite":
        return ReindexProgress("done"), 0
    sweeping, _, kind = mark.kind.rpartition(" ")
    share, after, done = WriterShare(PAGE), mark.after, 0
    while True:
        keys = (_swept if sweeping else _put_documents)(conn, kind, after)
        done += len(keys)
        if not keys:
            return ReindexProgress(KINDS[KINDS.index(mark.kind) + 1]), done
        after = keys[-1]
        if share.count_row(len(keys)):
            return ReindexProgress(mark.kind, after), done


def _put_documents(conn: Connection, kind: str, after: int) -> Sequence[int]:
    docs = (message_index if kind == "messages" else passage_rows).docs(
        conn, after, min(ROWS_PER_STATEMENT, PAGE)
    )
    fts.reindex_documents(conn, f"{kind}_fts", docs)
    return [key for key, _ in docs]


def _swept(conn: Connection, kind: str, after: int) -> Sequence[int]:
    return fts.delete_orphans(conn, f"{kind}_fts", kind, after)


def sizes(conn: Connection) -> dict[str, int]:
    """Return how many rows of each kind there are."""
    return {
        k: int(conn.execute(select(func.count()).select_from(table)).scalar() or 0)
        for k, table in (("messages", t.messages), ("passages", t.passages))
    }


async def schedule_embedding(db: Database) -> int:
    """Have the vectors of every scope looked after, those of texts that were refused too.

    Returns how many scopes.
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
        await db.write(partial(_look_after, scopes=scopes[i : i + PAGE]), piece=True)
    return len(scopes)


def _look_after(conn: Connection, scopes: Sequence[int]) -> None:
    for scope_id in scopes:
        enqueue(conn, vectors.job_of(scope_id, whole=True))


def count_unembedded_scopes(conn: Connection) -> dict[str, int]:
    """Return how many scopes' vectors are still to be looked after, by the state of the job; what
    turns ask for meanwhile does not count.
    """
    j = t.jobs.c
    return {
        row.state: row.n
        for row in conn.execute(
            select(j.state, func.count().label("n"))
            .where(j.kind == "embed", j.payload.contains('"whole"'))
            .group_by(j.state)
        )
    }


def begin(conn: Connection, mark: ReindexProgress | None = None) -> None:
    """Have the index made anew in the background."""
    mark = mark or ReindexProgress()
    enqueue(conn, QueuedJob("reindex", {"kind": mark.kind, "after": mark.after}, dedupe="reindex"))


def reindex_handler(db: Database) -> Handler:
    """Go on for some seconds, then leaves the rest to a job of its own."""

    async def run(job: QueuedJob) -> None:
        mark, until = ReindexProgress(**job.payload), time.monotonic() + JOB_SECONDS
        while True:
            mark, _ = await db.write(partial(step, mark=mark), piece=True)
            if mark.kind == "done" or time.monotonic() > until:
                break
        if mark.kind != "done":
            await db.write(lambda conn: begin(conn, mark))

    return run
