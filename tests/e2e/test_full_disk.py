"""A store that takes nothing: the client has the upstream's whole answer, and is told that none of
it is kept.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import resource
import sqlite3

import pytest

from memory.errors import StoreUnavailable
from memory.session import line_file
from memory.session import recovery_log as spilling
from memory.session.store_deadline import TURN_SECONDS
from memory.stores.sql.engine.database import Database
from tests.conftest import events, running, said
from tests.e2e.test_crash import spawned
from tests.models import Model, call, calls

REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_1"))
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "user": "ada"}


def words(response, stream):
    return (
        said(events(response.text))
        if stream
        else response.json()["choices"][0]["message"]["content"]
    )


def nothing_fits(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("when", ["before the request", "while the upstream works"])
async def test_a_full_disk_costs_the_client_nothing_of_its_answer(data, stream, when):
    child = None

    def fill():
        """From here on no file of the child's grows: what it writes fails as on a full disk."""
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    async def late(seen, wire):
        async with asyncio.timeout(10):
            while True:
                found = sqlite3.connect(data / "mnemogate.db")
                # a request that is durable is a node, or waits in the journal to become one
                look = "SELECT (SELECT count(*) FROM nodes) + (SELECT count(*) FROM journal)"
                count = found.execute(look).fetchone()[0]
                found.close()
                if count == 2:
                    break
                await asyncio.sleep(0.02)
        fill()
        return "all of it"

    script = ["hello", "all of it" if when == "before the request" else late, "still here"]
    async with Model(*script) as up, spawned(up.url, data) as (child, client):
        answer = await client.post(
            "/v1/chat/completions", json={**ASK, "messages": [{"role": "user", "content": "hello"}]}
        )
        assert answer.headers["x-memory-status"] == "ok"
        if when == "before the request":
            fill()
        answer = await client.post("/v1/chat/completions", json={**ASK, "stream": stream})
        assert (answer.status_code, words(answer, stream)) == (200, "all of it")
        if when == "before the request" or not stream:
            assert answer.headers["x-memory-status"] == "degraded"
        again = await client.post(
            "/v1/chat/completions",
            json={**ASK, "messages": [{"role": "user", "content": "and now?"}]},
        )
        assert (again.status_code, words(again, False)) == (200, "still here")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault",
    [StoreUnavailable("broken"), OSError(errno.ENOSPC, "full"), ValueError("nobody foresaw this")],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_whatever_the_store_and_the_spill_file_raise_the_answer_is_whole(
    data, monkeypatch, caplog, stream, fault, nth
):
    async with Model(REMEMBER, "fine") as up, running(up.url, data) as live:
        await asyncio.wait_for(live.gateway.memory._ready.wait(), 5)
        # Its writes are not the turn's.
        await live.stop_worker()
        original, count = Database.write, 0

        async def write(self, *a, **k):
            nonlocal count
            count += 1
            if count >= nth:
                raise fault
            return await original(self, *a, **k)

        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "mnemogate"):
            patch.setattr(Database, "write", write)
            patch.setattr(line_file, "write_parts", nothing_fits)
            response = await live.chat("hi", stream=stream, user="ada")
        assert (response.status_code, words(response, stream)) == (200, "fine")
        # Later, the header of a stream has left.
        if nth == 1 or not stream:
            assert response.headers["x-memory-status"] == "degraded"
        if nth == 3:
            assert "both the store and the recovery log failed" in caplog.text
        if not isinstance(fault, StoreUnavailable):
            assert "unexpected failure of the" in caplog.text
        assert not live.gateway.memory.in_flight.nodes


async def test_an_oserror_of_ours_is_no_client_that_left(data, monkeypatch, caplog):
    async with Model("fine") as up, running(up.url, data) as live:
        await live.chat("hello", user="ada")

        def broken(*_):
            raise OSError(errno.EIO, "our own")

        monkeypatch.setattr("gateway.chat.turn.turn.Turn.completion", broken)
        response = await live.chat("hi", user="ada")
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
        assert "our own" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rounds", [1, 4])
async def test_a_turn_waits_a_second_for_a_locked_store_however_many_rounds_it_has(
    data, stream, rounds
):
    began = asyncio.Event()
    other = None

    async def locks(seen, wire):
        """The first round's answer, when the request is there and somebody else writes for long."""
        async with asyncio.timeout(10):
            while (
                len(
                    await live.gateway.memory.db.read(
                        lambda c: list(c.exec_driver_sql("SELECT id FROM nodes"))
                    )
                )
                < 2
            ):
                await asyncio.sleep(0.01)
        other.execute("BEGIN IMMEDIATE")
        began.set()
        return REMEMBER

    async with (
        Model("hello", locks, *[REMEMBER] * (rounds - 1), "fine") as up,
        running(up.url, data) as live,
    ):
        await live.chat("hello", user="ada")
        await live.stop_worker()
        other = sqlite3.connect(data / "mnemogate.db", isolation_level=None)
        loop = asyncio.get_running_loop()
        try:
            asked = asyncio.create_task(live.chat("hi", user="ada", stream=stream))
            await began.wait()
            begun = loop.time()
            answer = await asked
            took = loop.time() - begun
        finally:
            other.close()
        # Where each wait had its own time: 2 s a round, and 2 s for the answer.
        assert took < 3 * TURN_SECONDS
        assert (answer.status_code, words(answer, stream)) == (200, "fine")
        if not stream:
            assert answer.headers["x-memory-status"] == "degraded"
        told = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "tool"]
        assert len(told) == rounds
        assert all("nothing was saved" in t for t in told)


async def test_a_memory_that_fails_to_open_in_a_way_nobody_foresaw_is_told_and_tried_again(
    data, monkeypatch, caplog
):
    load, tries = spilling.RecoveryLog.load, itertools.count()

    def failing(self):
        if next(tries) < 2:
            raise RuntimeError("nobody foresaw this")
        return load(self)

    monkeypatch.setattr(spilling.RecoveryLog, "load", failing)
    monkeypatch.setattr("gateway.server.lifespan.AGAIN_SECONDS", 0.01)
    with caplog.at_level(logging.ERROR, "mnemogate"):
        async with Model("fine") as up, running(up.url, data) as live:
            # Waits for the store at the start.
            response = await live.chat("hi", user="ada")
    assert response.headers["x-memory-status"] == "ok"
    told = [r for r in caplog.records if r.getMessage() == "memory cannot be opened; trying again"]
    # Once, with where it came from.
    assert [str(r.exc_info[1]) for r in told] == ["nobody foresaw this"]
    assert next(tries) == 3
