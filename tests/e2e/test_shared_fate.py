"""What one request, one user or one moment does to the memory of the others: nothing."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from memory.errors import StoreUnavailable
from memory.service import FAILURES
from memory.stores.sql.engine.database import Database
from memory.stores.sql.turns import turn_reader
from tests import stores
from tests.conftest import running
from tests.e2e.test_fit import CONFIG, long_chat, user
from tests.models import Model, call, calls


async def test_a_client_that_leaves_while_its_request_is_composed_leaves_nothing_behind(data):
    asked = asyncio.Event()

    async def model(seen, wire):
        if "SUMMARY" in str(seen.json["messages"][0]) or seen.json["messages"][0][
            "content"
        ].startswith("You compress"):
            asked.set()
            await asyncio.sleep(30)
        return "fine"

    async with Model(model) as up, running(up.url, data, CONFIG) as live:
        first = await live.chat("hello", user="ada")
        history = [user("hello"), first.json()["choices"][0]["message"]]
        leaving = asyncio.create_task(
            live.chat([*history, *long_chat(30)[1:]], user="ada", max_tokens=200)
        )
        await asyncio.wait_for(asked.wait(), 10)
        memory = live.gateway.memory
        assert memory.in_flight.nodes
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        async with asyncio.timeout(5):
            while memory.in_flight.nodes or memory.in_flight.continued or memory.in_flight.requests:
                await asyncio.sleep(0.01)
        again = await live.chat([*history, user("so?")], user="ada")
        assert again.headers["x-memory-conversation"] == first.headers["x-memory-conversation"]


@pytest.mark.parametrize("fault", [StoreUnavailable("late"), ValueError("nobody foresaw this")])
async def test_a_store_that_fails_while_a_request_is_composed_leaves_nothing_behind(
    data, monkeypatch, fault
):
    async with Model("fine") as up, running(up.url, data, CONFIG) as live:

        def fails(conn, scope_id, links):
            raise fault

        with monkeypatch.context() as patch:
            patch.setattr(turn_reader, "summaries", fails)
            first = await live.chat("hello", user="ada")
            history = [user("hello"), first.json()["choices"][0]["message"]]
            answer = await live.chat([*history, *long_chat(30)[1:]], user="ada", max_tokens=200)
            assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")
        memory = live.gateway.memory
        assert (memory.in_flight.nodes, memory.in_flight.continued, memory.in_flight.requests) == (
            set(),
            {},
            {},
        )
        again = await live.chat([*history, user("so?")], user="ada")
        assert again.headers["x-memory-conversation"] == first.headers["x-memory-conversation"]


async def test_one_users_slow_reads_close_nobody_elses_memory(data, monkeypatch):
    """However many of them are late, in a row and at once; the others read on, from the store
    too.
    """
    original = turn_reader.snapshot

    def slow(conn, ask):
        if ask.scope.user == "slow" and stores.POSTGRES:
            conn.exec_driver_sql("SELECT pg_sleep(0.5)")
        elif ask.scope.user == "slow":
            time.sleep(0.5)
        return original(conn, ask)

    async with Model("fine") as up, running(up.url, data, {"memory.read_deadline_ms": 150}) as live:
        for name in ("ada", "slow"):
            assert (await live.chat("hello", user=name)).headers["x-memory-status"] == "ok"
        monkeypatch.setattr(turn_reader, "snapshot", slow)
        long = [
            user("hello"),
            # No small read: it goes to a reader's thread.
            {"role": "assistant", "content": "x"},
        ] * 40
        for _ in range(FAILURES + 1):
            late = await live.chat([*long, user("so?")], user="slow")
            assert late.headers["x-memory-status"] == "degraded"
            other = await live.chat("and I?", user="ada")
            assert other.headers["x-memory-status"] == "ok"


async def test_a_store_that_answers_nothing_is_left_alone_for_a_while(data, monkeypatch):
    async with Model("fine") as up, running(up.url, data, {"memory.read_deadline_ms": 50}) as live:
        await live.chat("hello", user="ada")
        calls_made = 0

        async def stuck(self, work, deadline=None, **how):
            nonlocal calls_made
            calls_made += 1
            raise StoreUnavailable("stuck")

        with monkeypatch.context() as patch:
            patch.setattr(Database, "read", stuck)
            for i in range(FAILURES):
                await live.chat(f"hi {i}", user=f"u{i}")
            memory = live.gateway.memory
            async with asyncio.timeout(5):
                while memory.ready:
                    await asyncio.sleep(0.01)
            before = calls_made
            assert (await live.chat("and now?", user="x")).headers["x-memory-status"] == "degraded"
            # Nobody waits for it.
            assert calls_made == before


async def test_a_busy_process_is_no_late_store(db):
    """The loop hears of an answer late when it has much else to do; the store gave it in time."""
    began = threading.Event()

    def quick(conn):
        began.set()
        return conn.exec_driver_sql("SELECT 'there'").scalar()

    # What is connected and prepared once.
    await db.read(quick)
    began.clear()
    task = asyncio.create_task(db.read(quick, 0.05))
    async with asyncio.timeout(5):
        while not began.is_set():
            await asyncio.sleep(0)
    # What keeps the loop.
    time.sleep(0.3)
    assert await task == "there"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
async def test_an_explain_record_is_read_whatever_characters_are_in_it(data, mark):
    insert = calls(call("archival_memory_insert", {"content": f"fact a{mark}b"}, "call_1"))
    async with Model(insert, "fine") as up, running(up.url, data) as live:
        answer = await live.chat(f"one{mark}two", user="ada")
        token = {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        found = await live.memory(
            "GET", f"/explain/{answer.headers['x-memory-explain']}", headers=token
        )
        assert found.status_code == 200
        assert f"fact a{mark}b" in found.json()["tools"][0]["arguments"].encode().decode(
            "unicode_escape"
        )
