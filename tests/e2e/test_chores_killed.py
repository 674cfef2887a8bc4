"""A worker killed in the middle of a chore: the next one goes on, and nothing is done twice."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from sqlalchemy import func, insert, select, update

from memory.jobs import maintenance
from memory.jobs.worker import Worker
from memory.retrieval.retriever import Retriever, SemanticSearch
from memory.scope import Scope
from memory.stores.chroma import ChromaIndex
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.rows import jobs, passages, scopes
from memory.stores.sql.rows.jobs import QueuedJob
from tests.e2e.test_crash import ROOT

LONG_AGO = 1e9
SCOPES = (11, 12)
JOBS = {
    "erase": {"scopes": list(SCOPES), "passages": {}},
    "expire": {},
    "fade": {},
    "reindex": {"kind": "messages", "after": 0},
}
# Writes: erase has one a scope before it turns to the vectors, expire nine before its first batch,
# reindex
# one without a row.
AFTER = {"erase": 3, "expire": 11, "fade": 1, "reindex": 3}
P = t.passages.c


def fill(conn):
    ada, nobody = (
        scopes.get_or_create(conn, scopes.current_owner(conn, Scope("t", u, "default", b"s" * 32)))
        for u in ("ada", None)
    )
    for i in range(450):
        passages.add(
            conn, ada, passages.NewPassage(f"thing {i}", type="trivial", created_at=LONG_AGO)
        )
    for i in range(1, 251):
        conn.execute(
            insert(t.conversations).values(
                id=i,
                scope_id=nobody,
                name=f"c{i}",
                explicit=False,
                created_at=LONG_AGO,
                updated_at=LONG_AGO,
            )
        )
        conn.execute(
            insert(t.nodes).values(
                id=i,
                scope_id=nobody,
                conversation=i,
                turn=i,
                depth=1,
                state="done",
                branch=i,
                at=LONG_AGO,
            )
        )
        passages.add(conn, nobody, passages.NewPassage(f"thing {i}", node=i, created_at=LONG_AGO))


async def killed(path, kind):
    """Runs the job of this kind in a process of its own until it stands still, and kills it."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.e2e.stalling",
        str(path),
        kind,
        str(AFTER[kind]),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            assert await child.stdout.readline() == b"standing still\n"
    finally:
        child.kill()
        await child.wait()


async def number(db, query):
    return await db.read(lambda conn: conn.execute(query).scalar())


async def resumed(db, kind, retrieval=None):
    """What a worker does that starts once the dead one's lease has ended (in two minutes, brought
    forward).
    """

    def expire_lease(conn):
        states = [
            tuple(r)
            for r in conn.execute(
                select(t.jobs.c.state, t.jobs.c.attempts).where(t.jobs.c.kind == kind)
            )
        ]
        conn.execute(update(t.jobs).where(t.jobs.c.kind == kind).values(lease_until=0))
        return states

    assert await db.write(expire_lease) == [("running", 1)]
    worker = Worker(db)
    maintenance.register(worker, db, maintenance.RetentionPolicy(7, 30), retrieval or Retriever(db))
    worker.register("fade", maintenance.fade_handler(db))
    await worker.drain()


@pytest.fixture
async def path(db, tmp_path):
    await db.write(fill)
    # Of the inserts.
    await db.write(lambda conn: conn.execute(t.jobs.delete()) and None)
    return tmp_path / "test.db"


async def begun(db, kind):
    await db.write(lambda conn: jobs.enqueue(conn, QueuedJob(kind, JOBS[kind])))


async def test_fading_goes_on_and_sets_nothing_aside_twice(db, path):
    await begun(db, "fade")
    await killed(path, "fade")
    at = time.time()
    aside = (
        select(func.count())
        .select_from(t.passages)
        .where(P.deleted_at <= at, P.deleted_by == "cleanup")
    )
    assert await number(db, aside) == 500
    await resumed(db, "fade")
    assert await number(db, aside) == 500
    assert (
        await number(db, select(func.count()).select_from(t.passages).where(P.deleted_at > at))
        == 200
    )
    assert await number(db, select(func.count()).select_from(t.jobs)) == 0


async def test_expiring_goes_on_and_tells_the_index_of_each_passage_once(db, path):
    await begun(db, "expire")
    await killed(path, "expire")
    conversations = select(func.count()).select_from(t.conversations)
    assert await number(db, conversations) == 150
    told = []

    class Told(Retriever):
        async def forget(self, scope_id, kind, keys):
            told.extend(keys)

    before = await db.read(
        lambda conn: list(conn.execute(select(P.id).where(P.node != 0)).scalars())
    )
    told_by = Told(db)
    await resumed(db, "expire", told_by)
    # What the killed one left.
    await db.write(lambda conn: conn.execute(update(t.jobs).values(run_at=0)) and None)
    worker = Worker(db)
    maintenance.register(worker, db, maintenance.RetentionPolicy(7, 30), told_by)
    await worker.drain()
    assert await number(db, conversations) == 0
    assert await number(db, select(func.count()).select_from(t.passages).where(P.node != 0)) == 0
    assert (len(told), len(set(told))) == (250, 250)
    assert set(before) == set(told)
    # Of who is named.
    assert await number(db, select(func.count()).select_from(t.passages)) == 450


def named(scope):
    return f"scope-{scope}-passages-0"


async def test_an_erasure_goes_on_in_the_vector_index_where_part_of_it_is_gone(db, path, tmp_path):
    chroma = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    for scope in (*SCOPES, 13):
        await chroma.upsert(named(scope), [(scope, [1.0, 0.0])])
    await chroma.close()
    await begun(db, "erase")
    await killed(path, "erase")
    chroma = ChromaIndex("chroma:embedded", tmp_path / "chroma")
    assert [len(await chroma.nearest(named(s), [1.0, 0.0], 5)) for s in SCOPES] == [0, 1]
    await resumed(db, "erase", Retriever(db, SemanticSearch(None, chroma)))
    assert [len(await chroma.nearest(named(s), [1.0, 0.0], 5)) for s in (*SCOPES, 13)] == [0, 0, 1]
    await chroma.close()
    assert await number(db, select(func.count()).select_from(t.jobs)) == 0


async def test_an_index_made_anew_goes_on_and_holds_each_passage_once(db, path):
    await db.write(lambda conn: fts.recreate_indexes(conn))
    await begun(db, "reindex")
    await killed(path, "reindex")

    def held(conn):
        return conn.exec_driver_sql(
            "SELECT count(*), count(DISTINCT rowid) FROM passages_fts"
        ).one()

    rows, distinct = await db.read(held)
    assert 0 < rows == distinct <= 400
    await resumed(db, "reindex")
    assert tuple(await db.read(held)) == (700, 700)
    assert await number(db, select(func.count()).select_from(t.jobs)) == 0


@pytest.mark.parametrize("kind", sorted(JOBS))
async def test_a_chore_that_fails_every_time_ends_dead_and_is_kept_to_be_looked_at(db, kind):
    async def poisoned(*_, **how):
        raise RuntimeError("no")

    class Poisoned(Retriever):
        forget = embed_scope = poisoned

    worker = Worker(db)
    maintenance.register(worker, Broken(poisoned), maintenance.RetentionPolicy(7, 30), Poisoned(db))
    worker.register("fade", maintenance.fade_handler(Broken(poisoned)))
    await begun(db, kind)
    for _ in range(jobs.ATTEMPTS + 2):
        await worker.drain()
        await db.write(lambda conn: conn.execute(update(t.jobs).values(run_at=0)) and None)
    rows = await db.read(
        lambda conn: [
            tuple(r)
            for r in conn.execute(
                select(t.jobs.c.kind, t.jobs.c.state, t.jobs.c.attempts, t.jobs.c.error)
            )
        ]
    )
    assert rows == [(kind, "dead", jobs.ATTEMPTS, "RuntimeError")]


class Broken:
    """A store of which nothing comes."""

    def __init__(self, fails):
        self.read = self.write = fails
        self.application_tables = []
