"""The one writer between long works and everybody else's writes."""

from __future__ import annotations

import asyncio
import time

import pytest

from memory.errors import StoreUnavailable
from memory.search.query import passages_of
from memory.stores.sql.engine.batches import WriterShare, run_generator, write_batches
from memory.stores.sql.engine.database import Database


@pytest.mark.parametrize("small", [False, True])
async def test_a_write_waits_for_one_piece_and_no_more(db, small):
    made, pieces = [], iter(range(30))

    def piece(conn, share):
        time.sleep(0.01)
        made.append("piece")
        return next(pieces, None)

    works = [asyncio.create_task(write_batches(db, piece)) for _ in range(3)]
    while len(made) < 3:
        await asyncio.sleep(0.001)
    for _ in range(5):
        before = len(made)
        await db.write(lambda conn: made.append("write"), small=small)
        # The piece that was being made, the write, and one that began before we looked.
        assert len(made) - before <= 3
    await asyncio.gather(*works)


async def test_a_piece_shares_its_commit_with_no_other_write(db):
    def failing(conn):
        raise ValueError("this piece")

    tasks = [
        asyncio.create_task(db.write(work, **how))
        for work, how in (
            (lambda conn: 1, {}),
            (failing, {"piece": True}),
            (lambda conn: 2, {}),
            (lambda conn: 3, {"piece": True}),
            (lambda conn: 4, {}),
        )
    ]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [x if isinstance(x, int) else str(x) for x in found] == [1, "this piece", 2, 3, 4]


async def test_a_generator_goes_on_in_the_next_piece_where_it_was(db, monkeypatch):
    monkeypatch.setattr(WriterShare.__init__, "__defaults__", (4, 60.0))
    opened, seen = [], []

    def steps():
        for i in range(10):
            seen.append((i, len(opened)))
            yield 1

    await run_generator(db, steps(), opened.append)
    assert seen == [(i, 1 + i // 4) for i in range(10)]


async def test_a_piece_ends_with_its_time_whatever_its_rows(db):
    share = WriterShare(seconds=0.0)
    assert share.count_row(0)
    assert not WriterShare(rows=2, seconds=60.0).count_row(1)
    assert WriterShare(rows=1, seconds=60.0).count_row(1)


async def test_a_database_that_is_closed_tells_those_who_wait(tmp_path):
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    await db.open()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def long(conn):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(3)

    first = asyncio.create_task(db.write(long))
    await begun.wait()
    second = asyncio.create_task(db.write(lambda conn: 1))
    await asyncio.sleep(0)
    await db.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(second, 10)
    first.cancel()


def test_a_sentence_without_end_is_cut_in_time_that_grows_with_it_alone():
    """What copied the rest for each part took minutes for this one."""
    words = "word " * (4 << 20)
    begun = time.process_time()
    parts = passages_of(words)
    assert time.process_time() - begun < 10
    assert " ".join(parts).split() == words.split()
    assert max(map(len, parts)) <= 1000
