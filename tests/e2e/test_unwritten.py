"""What was acknowledged is not lost while the process lives, whatever the disk does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import sqlite3
import subprocess

import pytest

from memory.errors import StoreUnavailable
from memory.session import recovery_log
from memory.stores.sql.engine.database import Database
from tests.conftest import running
from tests.e2e.test_crash import spawned, stored
from tests.models import Model
from tests.other_user import needs_root

TURNS = 4
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def ask(number, **more):
    words = [{"role": "user", "content": f"question {number}"}]
    return {"model": "m", "messages": words, "user": f"user-{number}", **more}


class Answers:
    """Streams that stand still after their first words, until `go` is set."""

    def __init__(self):
        self.go, self.begun = asyncio.Event(), 0

    async def __call__(self, seen, wire):
        number = seen.json["messages"][-1]["content"].split()[-1]
        await wire.start_stream()
        await wire.event({**CHUNK, "choices": [self.delta({"role": "assistant", "content": "a "})]})
        self.begun += 1
        await self.go.wait()
        await wire.event({**CHUNK, "choices": [self.delta({"content": number}, "stop")]})
        await wire.event(b"[DONE]")
        await wire.end()

    @staticmethod
    def delta(delta, finish=None):
        return {"index": 0, "delta": delta, "finish_reason": finish}


async def until(holds, seconds=20):
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(sqlite3.OperationalError):
                if holds():
                    return
            await asyncio.sleep(0.05)


def answered(data):
    return [f"a {n}" for n in range(TURNS) if f"a {n}" in stored(data)[0]]


EVERY = [f"a {n}" for n in range(TURNS)]


async def streamed_over(client, answers, fault, data):
    """Stream turns that are told `ok`; the disk takes nothing more before they end."""
    turns = []
    for number in range(TURNS):
        body = ask(number, stream=True)
        turns.append(asyncio.create_task(client.post("/v1/chat/completions", json=body)))
        await until(lambda n=number: answers.begun == n + 1)
        await until(lambda n=number: f"question {n}" in stored(data)[0])
    fault()
    answers.go.set()
    told = await asyncio.gather(*turns)
    assert [answer.headers["x-memory-status"] for answer in told] == ["ok"] * TURNS
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in told)


async def test_turns_told_ok_before_the_disk_was_full_are_stored_once_it_has_room(data):
    """As on a full disk: from here on no file of the process grows, the recovery file neither."""
    answers = Answers()
    async with (
        Model(*[answers] * TURNS) as up,
        spawned(up.url, data) as (child, client),
    ):

        def limit(size):
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        await streamed_over(client, answers, lambda: limit(1), data)
        # Past the next attempt to store them.
        await asyncio.sleep(1.5)
        assert answered(data) == []
        assert (await client.get("/ready")).json()["degraded"] == ["recovery_file"]
        metrics = (await client.get("/metrics")).text
        assert f"mnemogate_unwritten_turns {TURNS}.0" in metrics
        limit(resource.RLIM_INFINITY)
        await until(lambda: answered(data) == EVERY)
        await until(lambda: not (data / "spill.ndjson").exists())
        assert (await client.get("/ready")).json() == {"status": "ok", "degraded": []}


@needs_root
async def test_turns_told_ok_survive_a_real_full_disk(data):
    data.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(data)], check=True)
    answers, filler = Answers(), data / "filler"
    try:
        async with Model(*[answers] * TURNS) as up, spawned(up.url, data) as (_, client):

            def fill():
                with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(1 << 12))
                with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0")
                # What the database has beforehand is used up too.
                resource_left = os.statvfs(data).f_bavail
                assert resource_left == 0

            await streamed_over(client, answers, fill, data)
            filler.unlink()
            await until(lambda: answered(data) == EVERY)
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def refusing(kind):
    def refuse(*_):
        raise OSError(kind, os.strerror(kind))

    return refuse


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
async def test_what_neither_takes_is_stored_in_order_once_the_store_is_back(
    data, monkeypatch, kind
):
    answers = Answers()

    async def write(self, work, **options):
        raise StoreUnavailable("read-only")

    async with Model(*[answers] * TURNS) as up, running(up.url, data) as live:
        await live.gateway.memory.wait_until_ready()
        live.http.base_url = live.root
        with monkeypatch.context() as patch:

            def break_it():
                patch.setattr(recovery_log, "append_lines", refusing(kind))
                patch.setattr(Database, "write", write)

            await streamed_over(live.http, answers, break_it, data)
            spill = live.gateway.memory.recovery_log
            assert (spill.held_records, spill.is_empty) == (TURNS, False)
            expected = [record.answers[0]["content"] for record in spill.load()]
        await until(lambda: answered(data) == EVERY)
        await until(lambda: spill.is_empty)
        assert stored(data)[0][-TURNS:] == expected


async def test_a_database_that_is_locked_for_long_loses_nothing_that_was_told_ok(data, monkeypatch):
    """A real lock, held past every patience; the recovery file takes nothing either."""
    answers = Answers()
    async with Model(*[answers] * TURNS, "x") as up, running(up.url, data) as live:
        await live.gateway.memory.wait_until_ready()
        live.http.base_url = live.root
        other = sqlite3.connect(data / "mnemogate.db", isolation_level=None)
        try:
            with monkeypatch.context() as patch:

                def lock():
                    patch.setattr(recovery_log, "append_lines", refusing(errno.ENOSPC))
                    other.execute("BEGIN IMMEDIATE")

                await streamed_over(live.http, answers, lock, data)
                await asyncio.sleep(3)
                assert live.gateway.memory.recovery_log.held_records == TURNS
                late = await live.http.post("/v1/chat/completions", json=ask(9))
                assert (late.status_code, late.headers["x-memory-status"]) == (200, "degraded")
                other.execute("ROLLBACK")
                await until(lambda: answered(data) == EVERY)
        finally:
            other.close()


async def test_turns_are_degraded_once_no_more_of_them_could_be_kept(data, monkeypatch):
    answers = Answers()
    async with Model(*[answers] * TURNS, "x", "y") as up, running(up.url, data) as live:
        await live.gateway.memory.wait_until_ready()
        live.http.base_url = live.root
        monkeypatch.setattr(recovery_log, "HELD_BYTES", 1)

        async def write(self, work, **options):
            raise StoreUnavailable("full")

        with monkeypatch.context() as patch:

            def break_it():
                patch.setattr(recovery_log, "append_lines", refusing(errno.ENOSPC))
                patch.setattr(Database, "write", write)

            await streamed_over(live.http, answers, break_it, data)
        with monkeypatch.context() as patch:
            patch.setattr(recovery_log, "append_lines", refusing(errno.ENOSPC))
            patch.setattr(Database, "write", write)
            for stream in (False, True):
                late = await live.http.post("/v1/chat/completions", json=ask(7, stream=stream))
                assert (late.status_code, late.headers["x-memory-status"]) == (200, "degraded")
            ready = (await live.http.get("/ready")).json()
            assert ready["degraded"] == ["memory", "recovery_file"]
        await until(lambda: answered(data) == EVERY)
        # The answers are seen in the file before their write returns.
        await until(lambda: live.gateway.memory.recovery_log.held_records == 0)
        async with asyncio.timeout(10):
            while (await live.http.get("/ready")).json()["status"] != "ok":
                await asyncio.sleep(0.01)
