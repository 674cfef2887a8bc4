"""The slots of a Postgres database: who may write to it, and when another takes over."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time

import asyncpg
import pytest
from sqlalchemy import insert

from memory.errors import StoreUnavailable
from memory.ids import STEP, Clock, new_key
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.postgres import postgres_lease
from memory.stores.sql.engine.postgres.postgres_lease import SlotLease, process_place, session_name
from memory.stores.sql.engine.postgres.postgres_statements import driver_arguments
from memory.stores.sql.engine.write_lock import EVERY_WRITE
from tests import stores
from tests.sockets import within

OTHER = 4711


@contextlib.asynccontextmanager
async def worker(url, tmp_path):
    """A memory that is one of the workers of its database."""
    db = Database(url, secret=stores.SECRET)
    db.need_lease()
    memory = Memory(db, Policy(), stores.SECRET, tmp_path)
    await memory.open()
    try:
        yield memory
    finally:
        await memory.close()


def put_worker(url, slot, seen_seconds_ago, pid=OTHER, place="elsewhere"):
    """Let another worker have a slot."""
    stores.on_server(
        url,
        "INSERT INTO workers (slot, incarnation, name, pid, place, seen_at) VALUES "
        f"({slot}, {OTHER}, 'other', {pid}, '{place}', "
        f"extract(epoch FROM clock_timestamp()) - {seen_seconds_ago})",
    )


def slots(url):
    return [row[0] for row in stores.on_server(url, "SELECT slot FROM workers ORDER BY 1")]


def mark(name):
    return lambda conn: conn.execute(insert(t.marks).values(name=name, upto=1))


async def test_each_worker_has_a_slot_of_its_own_and_gives_it_back(postgres_url, tmp_path):
    async with worker(postgres_url, tmp_path / "one") as one:
        async with worker(postgres_url, tmp_path / "two") as two:
            assert (one.db.lease.slot, two.db.lease.slot) == (0, 1)
            await one.db.write(mark("one"))
            await two.db.write(mark("two"))
        assert slots(postgres_url) == [0]
    assert slots(postgres_url) == []


async def test_the_slot_is_in_the_keys_of_rows_so_that_two_workers_never_make_one(postgres_url):
    for slot in range(7):
        stores.on_server(
            postgres_url,
            "INSERT INTO workers (slot, incarnation, pid, seen_at) VALUES "
            f"({slot}, {slot}, 1, extract(epoch FROM clock_timestamp()))",
        )
    lease = SlotLease(postgres_url)
    await lease.take()
    assert {new_key() % STEP for _ in range(100)} == {7}
    first = new_key(5)
    assert new_key() >= first + 5 * STEP
    await lease.release()


async def test_a_slot_is_leased_anew_after_an_hour_of_silence_and_not_before(postgres_url):
    put_worker(postgres_url, 0, 3500)
    lease = SlotLease(postgres_url)
    await lease.take()
    assert lease.slot == 1
    await lease.release()
    stores.on_server(postgres_url, "UPDATE workers SET seen_at = seen_at - 200")
    await lease.take()
    assert lease.slot == 0
    await lease.release()


async def test_of_a_process_that_has_ended_on_this_machine_it_is_free_at_once(postgres_url):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert process_place()
    put_worker(postgres_url, 0, 0, pid=gone.pid, place=process_place())
    lease = SlotLease(postgres_url)
    await lease.take()
    assert (lease.slot, slots(postgres_url)) == (0, [0])
    await lease.release()


# Waits for a beat under way, which goes on in this event loop: so it is run beside it.
TAKEN_AWAY = "ALTER TABLE workers RENAME TO away"
BROUGHT_BACK = "ALTER TABLE away RENAME TO workers"


async def test_who_cannot_renew_it_writes_nothing_says_so_and_goes_on_once_it_can(
    postgres_url, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(postgres_lease, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(postgres_lease, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(postgres_lease, "HOLD_SECONDS", 0.5)
    async with worker(postgres_url, tmp_path) as memory:
        assert memory.ready
        await asyncio.to_thread(stores.on_server, postgres_url, TAKEN_AWAY)
        assert await within(5, lambda: "has lost its lease" in caplog.text)
        assert not memory.ready
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.db.write(mark("lost"))
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.wait_until_ready()
        await asyncio.to_thread(stores.on_server, postgres_url, BROUGHT_BACK)
        assert await within(5, lambda: "serves its database again" in caplog.text)
        await memory.db.write(mark("again"))
        assert memory.ready
    names = stores.on_server(postgres_url, "SELECT name FROM marks WHERE name != 'terms'")
    assert [row[0] for row in names] == ["again"]


async def test_a_write_is_not_committed_by_who_lost_the_lease_meanwhile(postgres_url, tmp_path):
    async with worker(postgres_url, tmp_path) as memory:

        def work(conn):
            mark("late")(conn)
            memory.db.lease._renewed_at -= postgres_lease.HOLD_SECONDS

        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.db.write(work)
    assert (
        stores.on_server(postgres_url, "SELECT count(*) FROM marks WHERE name != 'terms'")[0][0]
        == 0
    )


async def test_a_process_that_stood_still_renews_its_lease_before_it_refuses(
    postgres_url, tmp_path
):
    async with worker(postgres_url, tmp_path) as memory:
        lost = []
        memory.db.lease._on_beat = lost.append
        memory.db.lease._renewed_at -= 60
        assert not memory.ready
        await asyncio.gather(*(memory.db.write(mark(str(i))) for i in range(20)))
        await memory.wait_until_ready()
        assert memory.ready
        # One renewal for all, after which others' edits are looked for.
        assert lost == [True]
    assert (
        stores.on_server(postgres_url, "SELECT count(*) FROM marks WHERE name != 'terms'")[0][0]
        == 20
    )


async def test_nobody_waits_for_a_renewal_that_failed_before(postgres_url, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres_lease, "BEAT_SECONDS", 60)
    async with worker(postgres_url, tmp_path) as memory:
        asked = []
        monkeypatch.setattr(memory.db.lease, "_renew_over", lambda raw: asked.append(1) or away())
        memory.db.lease._renewed_at -= 60
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="lost its lease"):
                await memory.wait_until_ready()
        assert asked == [1]


async def away():
    raise ConnectionResetError


async def test_who_was_given_up_registers_anew_before_it_writes(
    postgres_url, tmp_path, monkeypatch
):
    monkeypatch.setattr(postgres_lease, "BEAT_SECONDS", 0.1)
    async with worker(postgres_url, tmp_path) as memory:
        stores.on_server(postgres_url, "DELETE FROM workers")
        put_worker(postgres_url, 0, 0)
        assert await within(5, lambda: memory.db.lease.slot == 1)
        await memory.db.write(mark("anew"))


async def test_a_database_that_does_not_answer_is_told(postgres_url):
    away = SlotLease(postgres_url.rsplit("/", 1)[0] + "/no_such_database")
    # The pooler's words.
    why = "cannot be renewed: (InvalidCatalogName|ProtocolViolation)Error"
    with pytest.raises(StoreUnavailable, match=why):
        await away.take()
    assert not away.is_held


async def test_what_a_silent_worker_holds_is_ended_and_nothing_else(postgres_url, tmp_path):
    arguments = driver_arguments(postgres_url)
    names = {"other": session_name(OTHER), "command": "mnemogate a command"}
    sessions = {
        one: await asyncpg.connect(**arguments, server_settings={"application_name": name})
        for one, name in names.items()
    }
    try:
        # As one that stands still in the middle of a transaction.
        await sessions["other"].execute(f"BEGIN; SELECT pg_advisory_xact_lock({EVERY_WRITE})")
        put_worker(postgres_url, 0, 16)
        async with worker(postgres_url, tmp_path) as memory:
            await memory.db.write(mark("taken"))
        assert await within(5, sessions["other"].is_closed)
        assert await sessions["command"].fetchval("SELECT 1") == 1
    finally:
        for session in sessions.values():
            session.terminate()


async def test_a_worker_that_was_silent_itself_keeps_its_own_sessions(postgres_url, tmp_path):
    async with worker(postgres_url, tmp_path) as memory:
        await memory.db.write(mark("before"))
        stores.on_server(postgres_url, "UPDATE workers SET seen_at = seen_at - 60")
        await memory.db.lease.renew()
        await memory.db.write(mark("after"))
        assert slots(postgres_url) == [0]


async def test_rows_have_the_time_of_the_database_where_this_clock_is_wrong(
    postgres_url, monkeypatch, caplog
):
    real = time.time
    monkeypatch.setattr(postgres_lease, "clock", own := Clock())
    monkeypatch.setattr("memory.ids.time.time", lambda: real() + 300)
    lease = SlotLease(postgres_url)
    await lease.take()
    assert abs(own.now() - real()) < 2
    assert "clock is +300 s off" in caplog.text
    await lease.release()
