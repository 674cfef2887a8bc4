"""The keyword index made anew from the rows, page by page, each a transaction of its own: searches and turns go on meanwhile, and
what was interrupted goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, union

from memory.jobs.queue import Job, enqueue
from memory.jobs.worker import Handler
from memory.stores.sql import index, vectors
from memory.stores.sql import messages as message_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import schema as t
from memory.stores.sql.engine import Database
from memory.stores.sql.pieces import FEW, Share

PAGE = 200  # rows a transaction at most: a turn that writes meanwhile waits for no more
SECONDS = 60.0  # of one background job; the rest is the next one's
KINDS = ("messages", "passages", "swept messages", "swept passages", "done")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far it is. kind: one of `KINDS`, in their order: what is put in anew, then what has documents
    without a row taken out. after: the last row key of that kind that is done."""

    kind: str = KINDS[0]
    after: int = 0


def step(conn: Connection, mark: Mark) -> tuple[Mark, int]:
    """One piece. Returns the next mark, and how many rows this one was."""
    if mark.kind == "done" or conn.dialect.name != "sqlite":
        return Mark("done"), 0
    sweeping, _, kind = mark.kind.rpartition(" ")
    share, after, done = Share(PAGE), mark.after, 0
    while True:
        keys = (_swept if sweeping else _put)(conn, kind, after)
        done += len(keys)
        if not keys:
            return Mark(KINDS[KINDS.index(mark.kind) + 1]), done
        after = keys[-1]
        if share.spent(len(keys)):
            return Mark(mark.kind, after), done


def _put(conn: Connection, kind: str, after: int) -> Sequence[int]:
    docs = (message_rows if kind == "messages" else passage_rows).docs(conn, after, min(FEW, PAGE))
    index.again(conn, f"{kind}_fts", docs)
    return [key for key, _ in docs]


def _swept(conn: Connection, kind: str, after: int) -> Sequence[int]:
    return index.swept(conn, f"{kind}_fts", kind, after)


def sizes(conn: Connection) -> dict[str, int]:
    """How many rows of each kind there are."""
    return {
        k: int(conn.execute(select(func.count()).select_from(table)).scalar() or 0)
        for k, table in (("messages", t.messages), ("passages", t.passages))
    }


async def embed_again(db: Database) -> int:
    """Has the vectors of every scope looked after, those of texts that were refused too. Returns how many scopes."""
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
        await db.write(lambda conn, some=scopes[i : i + PAGE]: _look_after(conn, some), piece=True)  # type: ignore[misc]
    return len(scopes)


def _look_after(conn: Connection, scopes: Sequence[int]) -> None:
    for scope_id in scopes:
        enqueue(conn, vectors.job_of(scope_id, whole=True))


def embedding(conn: Connection) -> dict[str, int]:
    """How many scopes' vectors are still to be looked after, by the state of the job; what turns ask for meanwhile does not count."""
    j = t.jobs.c
    return {
        row.state: row.n
        for row in conn.execute(
            select(j.state, func.count().label("n"))
            .where(j.kind == "embed", j.payload.contains('"whole"'))
            .group_by(j.state)
        )
    }


def begin(conn: Connection, mark: Mark | None = None) -> None:
    """Has the index made anew in the background."""
    mark = mark or Mark()
    enqueue(conn, Job("reindex", {"kind": mark.kind, "after": mark.after}, dedupe="reindex"))


def reindexing(db: Database) -> Handler:
    """Goes on for some seconds, then leaves the rest to a job of its own."""

    async def run(job: Job) -> None:
        mark, until = Mark(**job.payload), time.monotonic() + SECONDS
        while True:
            mark, _ = await db.write(lambda conn, m=mark: step(conn, m), piece=True)  # type: ignore[misc]
            if mark.kind == "done" or time.monotonic() > until:
                break
        if mark.kind != "done":
            await db.write(lambda conn: begin(conn, mark))

    return run
