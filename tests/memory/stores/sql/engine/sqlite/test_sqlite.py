"""SQLite's write-ahead log under writes that never stop."""

import asyncio
import os
import re
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from memory.errors import StoreUnavailable
from memory.stores.sql.engine import database
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.sqlite import sqlite as threads
from memory.stores.sql.turns import turn_reader
from memory.stores.sql.turns.journal import BehindJournal

ROW = "INSERT INTO marks (name, upto) VALUES (:name, 1)"


def writing(name):
    return lambda conn: conn.execute(text(ROW), {"name": name}) and None


async def names(db):
    return await db.read(
        lambda conn: (
            conn.execute(text("SELECT name FROM marks WHERE name != 'terms' ORDER BY name"))
            .scalars()
            .all()
        )
    )


async def test_the_log_does_not_grow_without_bound_and_nothing_is_lost(db, tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "CHECKPOINT", 16)
    monkeypatch.setattr(threads, "BEHIND", 48)
    monkeypatch.setattr(threads, "LONG_LOG_PAGES", 128)
    sizes = []

    async def client(c):
        for i in range(500):
            await db.write(writing(f"{c:02} {i:03}"), small=True)
            sizes.append(os.path.getsize(tmp_path / "a.db-wal"))

    await asyncio.gather(*map(client, range(4)))
    assert await names(db) == [f"{c:02} {i:03}" for c in range(4) for i in range(500)]
    assert max(sizes) < 4 * 128 * threads.PAGE
    # By the writer's own connection.
    await db.write(writing("last"))
    assert len(await names(db)) == 2001


async def test_a_long_log_file_is_never_cut_on_the_loops_thread(db):
    limit = "PRAGMA journal_size_limit"
    inline = db._connections._own_connection[0].raw
    assert inline.execute(limit).fetchone() == (-1,)
    for thread in db._connections._open_connections:
        row = await thread.call(lambda raw=thread.raw: raw.execute(limit).fetchone())
        assert row == (threads.LONG_LOG_PAGES * threads.PAGE,)


async def test_writes_that_outrun_a_checkpoint_wait_for_it(db, monkeypatch):
    """A slow disk, or a thread that gets no processor: the log is bounded by what was written, not
    by how long that took.
    """
    monkeypatch.setattr(threads, "CHECKPOINT", 16)
    monkeypatch.setattr(threads, "BEHIND", 64)
    # What made the tables counts too.
    db._connections._since_checkpoint = 0
    thread, go = db._connections._checkpointer, threading.Event()
    checkpoint = thread.checkpoint
    monkeypatch.setattr(thread, "checkpoint", lambda: go.wait(10) and checkpoint())
    done = 0

    async def client():
        nonlocal done
        for i in range(300):
            await db.write(writing(f"{i:03}"), small=True)
            done += 1

    one = asyncio.create_task(client())
    try:
        while db._connections.pause is None:
            await asyncio.sleep(0.01)
            assert not one.done()
        reached = done
        await asyncio.sleep(0.1)
        assert 16 + 64 - 1 <= reached == done
    finally:
        go.set()
    async with asyncio.timeout(10):
        await one
    assert await names(db) == [f"{i:03}" for i in range(300)]


async def test_no_write_waits_for_a_checkpoint_but_pieces_of_long_work(db, monkeypatch):
    """A checkpoint waits for the disk, for half a second where others write much. Long work waits
    for it, else the log would grow; whoever else writes does not.
    """
    begun, go = threading.Event(), threading.Event()
    checkpoint = threads.ConnectionThread.checkpoint

    def wait_for_disk(thread):
        begun.set()
        go.wait(10)
        return checkpoint(thread)

    monkeypatch.setattr(threads.ConnectionThread, "checkpoint", wait_for_disk)
    db._connections._count(threads.CHECKPOINT)
    piece = None
    try:
        assert await asyncio.to_thread(begun.wait, 5)
        piece = asyncio.create_task(db.write(writing("piece"), piece=True))
        async with asyncio.timeout(5):
            await db.write(writing("by the writer"))
            await db.write(writing("small"), small=True)
        assert await names(db) == ["by the writer", "small"]
    finally:
        go.set()
    async with asyncio.timeout(5):
        await piece
    assert await names(db) == ["by the writer", "piece", "small"]


async def test_a_close_gives_up_on_a_log_that_is_not_brought_in_and_whoever_waits_is_told(
    db, monkeypatch
):
    monkeypatch.setattr(database, "CLOSE_SECONDS", 0.2)
    thread, go = db._connections._checkpointer, threading.Event()
    checkpoint_rest = thread.checkpoint_rest
    monkeypatch.setattr(threads, "LONG_LOG_PAGES", 0)
    monkeypatch.setattr(thread, "checkpoint_rest", lambda: go.wait(10) and checkpoint_rest())
    db._connections._count(threads.CHECKPOINT)
    async with asyncio.timeout(10):
        while db._connections.pause is None:
            await asyncio.sleep(0.01)
    waits = asyncio.create_task(db.write(writing("late"), small=True))
    closing = asyncio.create_task(db.close())
    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable, match="closed"):
            await waits
    # The thread is in the middle of it.
    assert not closing.done()
    go.set()
    async with asyncio.timeout(10):
        await closing
    await db.open()
    assert await names(db) == []


async def test_small_writes_wait_for_the_end_of_a_long_log_and_what_is_kept_stays_good(db):
    version = db.version
    pause = db._connections.pause = asyncio.get_running_loop().create_future()
    made = [asyncio.create_task(db.write(writing(f"{i}"), small=True)) for i in range(3)]
    await asyncio.sleep(0.05)
    made.append(asyncio.create_task(db.write(writing("3"), small=True)))
    made[0].cancel()
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in made[1:])
    db._connections.pause = None
    pause.set_result(None)
    await asyncio.gather(*made[1:])
    assert await names(db) == ["1", "2", "3"]
    assert db._connections.version() == version[1]


@pytest.mark.parametrize("reading", [True, False])
async def test_works_that_wait_long_on_the_loops_thread_have_a_thread_of_their_own_for_a_while(
    db, monkeypatch, reading
):
    def where(conn):
        return threading.get_ident()

    async def once():
        return (
            await (db.read(where, small=True) if reading else db.write(where, small=True))
            == threading.get_ident()
        )

    assert await once()
    clock = iter(range(1000))
    # Each waits a second.
    monkeypatch.setattr(
        threads, "time", SimpleNamespace(monotonic=lambda: next(clock), thread_time=lambda: 0.0)
    )
    assert await once()
    assert not await once()
    monkeypatch.setattr(
        threads,
        "time",
        SimpleNamespace(
            monotonic=lambda: 1000 + threads.INLINE_BACKOFF_SECONDS, thread_time=lambda: 0.0
        ),
    )
    assert await once()


async def test_a_small_read_sees_what_others_wrote_and_waits_for_nobody(db, tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("INSERT INTO marks (name, upto) VALUES ('theirs', 1)")
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO marks (name, upto) VALUES ('unfinished', 1)")
        assert await db.read(
            lambda conn: (
                conn.execute(text("SELECT name FROM marks WHERE name != 'terms'")).scalars().all()
            ),
            small=True,
        ) == ["theirs"]
        other.execute("ROLLBACK")


def test_no_statement_of_a_turn_compares_a_state_with_a_parameter():
    """SQLite looks at such a one for its partial indexes, and prepares the statement anew with
    every use.
    """
    of_nodes = [
        turn_reader.select_by_digest(4),
        turn_reader.BY_CHAIN,
        turn_reader.ABORTED,
        turn_reader.ABORTED_AFTER,
        turn_reader.ONE,
        turn_reader.WAITING,
        turn_reader.ATTEMPT,
    ]
    assert not [
        sql
        for s in of_nodes
        if re.search(r"state\W+\?", sql := str(s.compile(dialect=sqlite.dialect())))
    ]


async def test_the_files_are_their_owners_alone(db, tmp_path):
    await db.write(writing("a"))
    assert {f.name: oct(f.stat().st_mode & 0o777) for f in tmp_path.iterdir()} == dict.fromkeys(
        ("a.db", "a.db-wal", "a.db-shm"), "0o600"
    )


async def test_a_file_that_cannot_be_set_up_leaves_no_connection(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE x (y)")
        # So that it cannot be made a WAL database.
        other.execute("BEGIN EXCLUSIVE")
        found = threads.SqliteThreads(str(tmp_path / "a.db"), "NORMAL", {})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "BUSY_TIMEOUT_MS", 1)
            with pytest.raises(OSError, match="locked"):
                await found.open()
        assert found._open_connections == []
        other.execute("COMMIT")
    await found.open()
    await found.close()


async def test_a_close_waits_for_the_small_writes_that_wait(tmp_path):
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    await db.open()
    pause = db._connections.pause = asyncio.get_running_loop().create_future()
    made = asyncio.create_task(db.write(writing("a"), small=True))
    await asyncio.sleep(0)

    def over():
        db._connections.pause = None
        pause.set_result(None)

    asyncio.get_running_loop().call_later(0.1, over)
    await db.close()
    await made
    again = Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    await again.open()
    assert await names(again) == ["a"]
    await again.close()


async def test_a_small_write_that_nobody_waits_behind_is_durable_at_once(db):
    work = BehindJournal(db.journal, writing("now"), NO_TURNS)
    assert db.write_now(work) is not None
    assert await names(db) == ["now"]


async def test_a_small_write_waits_behind_those_that_came_before(db):
    waiting = asyncio.create_task(db.write(writing("first"), small=True))
    await asyncio.sleep(0)
    assert db.write_now(BehindJournal(db.journal, writing("second"), NO_TURNS)) is None
    await waiting
    assert await names(db) == ["first"]


async def test_a_write_that_fails_at_once_is_left_to_its_turn(db):
    def fails(conn):
        writing("lost")(conn)
        raise LookupError

    assert db.write_now(BehindJournal(db.journal, fails, NO_TURNS)) is None
    assert await names(db) == []


@pytest.mark.parametrize(("waits", "is_inline"), [(0.0, True), (0.5, False)])
async def test_work_stays_on_the_loops_thread_unless_it_waits(db, monkeypatch, waits, is_inline):
    """A long work costs as much elsewhere, and a write there forgets what is kept of the index."""
    clock = SimpleNamespace(monotonic=lambda: clock.now, thread_time=lambda: clock.cpu)
    clock.now, clock.cpu = 1000.0, 0.0
    monkeypatch.setattr(threads, "time", clock)

    def work(conn):
        clock.now += 0.5 + waits
        clock.cpu += 0.5
        conn.execute(text(ROW), {"name": f"{clock.now}"})

    version = db.version
    for _ in range(4):
        await db.write(work, small=True)
    monkeypatch.undo()
    assert (db.version == version) is is_inline
