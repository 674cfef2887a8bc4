"""Gathered writes: whoever reads sees them, and nobody sees those of a block that failed."""

from __future__ import annotations

import pytest
from sqlalchemy import bindparam, insert, select, update

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.gathered_writes import gather_writes
from memory.stores.sql.engine.statements import add_row, add_rows, execute, execute_sql, put_row

g = t.generations.c
BY_OWNER = select(g.generation).where(g.owner == bindparam("which"))
RAISE = update(t.generations).where(g.owner == bindparam("which")).values(generation=7)
ADD_AND_TELL = (
    insert(t.generations)
    .values(owner=bindparam("owner"), generation=bindparam("generation"))
    .returning(g.generation)
)


@pytest.fixture
async def db(tmp_path):
    db = Database(f"sqlite+aiosqlite:///{tmp_path / 'm.db'}")
    await db.open()
    yield db
    await db.close()


def generation_of(conn, owner):
    return execute(conn, BY_OWNER, {"which": owner}).scalar()


def count_rows(conn):
    return execute_sql(conn, "SELECT count(*) FROM generations")[0][0]


def add(conn, number):
    add_row(conn, t.generations, owner=b"%d" % number, generation=number)


async def test_writes_are_there_after_the_block(db):
    def work(conn):
        with gather_writes(conn):
            for number in range(20):
                add(conn, number)
            rows = [{"owner": b"b%d" % n, "generation": n} for n in range(3)]
            add_rows(conn, t.generations, rows)
            put_row(conn, t.generations, ("owner",), owner=b"3", generation=30)
        return count_rows(conn), generation_of(conn, b"3")

    assert await db.write(work) == (23, 30)


@pytest.mark.parametrize("small", [False, True])
async def test_a_read_in_the_block_sees_what_came_before_it(db, small):
    def work(conn):
        with gather_writes(conn):
            add(conn, 1)
            execute(conn, RAISE, {"which": b"1"})
            seen = [generation_of(conn, b"1")]
            add(conn, 2)
            seen.append(count_rows(conn))
            told = execute(conn, ADD_AND_TELL, {"owner": b"3", "generation": 5}).scalar()
            execute(conn, RAISE, {"which": b"3"})
        return [*seen, told, generation_of(conn, b"3")]

    assert await db.write(work, small=small) == [7, 2, 5, 7]


async def test_nothing_waits_behind_a_block_that_failed(db):
    def fail(conn):
        with gather_writes(conn):
            add(conn, 1)
            raise ValueError

    def work(conn):
        with pytest.raises(ValueError):
            fail(conn)
        add(conn, 2)
        with gather_writes(conn):
            add(conn, 3)
        return count_rows(conn)

    assert await db.write(work) == 2
