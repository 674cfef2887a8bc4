"""The lease of a Postgres database: who may write to it, and who takes over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time

import asyncpg
import pytest
from sqlalchemy import insert

from memory.errors import StoreUnavailable
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql import postgres_lease
from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.postgres_lease import session_name
from memory.stores.sql.postgres_statements import driver_arguments
from memory.stores.sql.write_lock import EVERY_WRITE
from tests import stores
from tests.sockets import within

READ = "SELECT value FROM meta WHERE name = 'gateway'"


@contextlib.asynccontextmanager
async def gateway(url, tmp_path):
    """A memory that needs the lease of its database."""
    db = Database(url, secret=stores.SECRET)
    db.need_lease()
    memory = Memory(db, Policy(), stores.SECRET, tmp_path)
    await memory.open()
    try:
        yield memory
    finally:
        await memory.close()


def put_holder(url, seen_seconds_ago, **more):
    """Let another gateway have the lease."""
    row = {"incarnation": "other", "host": "elsewhere", "pid": 4711, "place": "there", **more}
    stores.on_server(
        url,
        "DELETE FROM meta WHERE name = 'gateway'",
        "INSERT INTO meta (name, value) SELECT 'gateway', (jsonb_build_object('seen', extract("
        f"epoch FROM clock_timestamp()) - {seen_seconds_ago}) || '{json.dumps(row)}')::text",
    )


def holder(url):
    rows = stores.on_server(url, READ)
    return json.loads(rows[0][0]) if rows else None


def mark(name):
    return lambda conn: conn.execute(insert(t.marks).values(name=name, upto=1))


async def test_one_gateway_has_it_the_next_is_told_who_and_gets_it_when_that_ends(
    postgres_url, tmp_path
):
    async with gateway(postgres_url, tmp_path / "one") as one:
        assert holder(postgres_url)["pid"] == os.getpid()
        with pytest.raises(StoreUnavailable, match=rf"another gateway .*process {os.getpid()}"):
            async with gateway(postgres_url, tmp_path / "two"):
                pytest.fail("two gateways serve one database")
        await one.db.write(mark("one"))
    assert holder(postgres_url) is None
    async with gateway(postgres_url, tmp_path / "two") as two:
        await two.db.write(mark("two"))


async def test_one_that_is_silent_for_15_s_loses_it_and_one_that_renews_it_does_not(
    postgres_url, tmp_path
):
    for seconds, taken in ((16, True), (1, False)):
        put_holder(postgres_url, seconds)
        lease = postgres_lease.PostgresLease(postgres_url)
        other = await asyncio.to_thread(lease.claim_at_start)
        assert (other is None, lease.is_held) == (taken, taken)
        if other is not None:
            assert str(other) == "host elsewhere, process 4711, seen 1 s ago"


async def test_one_that_is_overdue_is_waited_for(postgres_url):
    put_holder(postgres_url, 13)
    lease, began = postgres_lease.PostgresLease(postgres_url), time.monotonic()
    assert await asyncio.to_thread(lease.claim_at_start) is None
    assert time.monotonic() - began > 1


async def test_of_a_process_that_has_ended_on_this_machine_it_is_taken_at_once(postgres_url):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    place = postgres_lease.process_place()
    assert place
    put_holder(postgres_url, 0, pid=gone.pid, place=place)
    lease = postgres_lease.PostgresLease(postgres_url)
    assert await asyncio.to_thread(lease.claim_at_start) is None


async def test_who_lost_it_writes_nothing_says_so_and_goes_on_once_it_is_free(
    postgres_url, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(postgres_lease, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(postgres_lease, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(postgres_lease, "HOLD_SECONDS", 0.5)
    async with gateway(postgres_url, tmp_path) as memory:
        assert memory.ready
        put_holder(postgres_url, -60)
        assert await within(5, lambda: "has lost its lease" in caplog.text)
        assert "host elsewhere, process 4711" in caplog.text
        assert not memory.ready
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.db.write(mark("lost"))
        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.wait_until_ready()
        put_holder(postgres_url, 16)
        assert await within(5, lambda: "serves its database again" in caplog.text)
        await memory.db.write(mark("again"))
        assert memory.ready
    names = stores.on_server(postgres_url, "SELECT name FROM marks")
    assert [row[0] for row in names] == ["again"]


async def test_a_write_is_not_committed_by_who_lost_the_lease_meanwhile(postgres_url, tmp_path):
    async with gateway(postgres_url, tmp_path) as memory:

        def work(conn):
            mark("late")(conn)
            memory.db.lease._renewed_at -= postgres_lease.HOLD_SECONDS

        with pytest.raises(StoreUnavailable, match="lost its lease"):
            await memory.db.write(work)
    assert stores.on_server(postgres_url, "SELECT count(*) FROM marks")[0][0] == 0


async def test_a_database_that_does_not_answer_is_claimed_once_it_does(postgres_url):
    away = postgres_lease.PostgresLease(postgres_url.rsplit("/", 1)[0] + "/no_such_database")
    assert await asyncio.to_thread(away.claim_at_start) is None
    assert not away.is_held
    with pytest.raises(StoreUnavailable, match="cannot be renewed: InvalidCatalogNameError"):
        await away.take()


async def test_who_takes_it_over_ends_what_the_one_before_holds_and_nothing_else(
    postgres_url, tmp_path
):
    put_holder(postgres_url, 16)
    arguments = driver_arguments(postgres_url)
    names = {"other": session_name("other"), "command": session_name("a command")}
    sessions = {
        one: await asyncpg.connect(**arguments, server_settings={"application_name": name})
        for one, name in names.items()
    }
    try:
        # As one that stands still in the middle of a transaction.
        await sessions["other"].execute(f"BEGIN; SELECT pg_advisory_xact_lock({EVERY_WRITE})")
        first = postgres_lease.PostgresLease(postgres_url)
        assert await asyncio.to_thread(first.claim_at_start) is None
        await first.release()
        async with gateway(postgres_url, tmp_path) as memory:
            await memory.db.write(mark("taken"))
        assert await within(5, sessions["other"].is_closed)
        assert await sessions["command"].fetchval("SELECT 1") == 1
    finally:
        for session in sessions.values():
            session.terminate()
