"""K. What a request waits for in the store, and what the process needs to start."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from memory.stores.sql.engine.database import Database
from tests import stores
from tests.conftest import running
from tests.e2e.wire.child import MAIN, child, settled
from tests.e2e.wire.reading import asked, both
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
ROOT = Path(__file__).parents[3]


@row(161)
@pytest.mark.parametrize("how", ["hangs", "locked", "cannot be opened"])
async def test_off_and_the_relay_ask_nothing_of_a_store_that_is_not_there(data, monkeypatch, how):
    async def never(self, *args, **options):
        await asyncio.Event().wait()

    data.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        if how == "hangs":
            for verb in ("open", "read", "write"):
                monkeypatch.setattr(Database, verb, never)
        elif how == "locked":
            other = stack.enter_context(
                contextlib.closing(sqlite3.connect(data / "mnemogate.db", isolation_level=None))
            )
            other.execute("BEGIN EXCLUSIVE")
        else:
            (data / "mnemogate.db").mkdir()
        async with Model("Fine.") as up, running(up.url, data) as live:
            memory = live.gateway.memory
            memory.policy = replace(memory.policy, start_wait=120.0)
            begun = time.monotonic()
            for stream in (False, True):
                for headers in (
                    {"x-memory": "off"},
                    {"x-memory": "off", "x-memory-user": "ada", "x-memory-conversation": "c"},
                ):
                    response = await live.chat("hi", headers, stream=stream)
                    assert (response.status_code, response.headers["x-memory-status"]) == (
                        200,
                        "off",
                    )
            # A chat UI's own request.
            title = await live.chat("### Task:\nGenerate a concise, 3-5 word title", user="ada")
            assert title.headers["x-memory-status"] == "off"
            up.script = [lambda seen, wire: wire.json({"object": "list", "data": []})]
            assert (
                await live.http.post(f"{live.url}/embeddings", json={"model": "e", "input": "x"})
            ).status_code == 200
            assert (await live.http.get(f"{live.url}/models")).status_code == 200
            assert (await live.http.get(f"{live.root}/health")).status_code == 200
            # Each of them would have waited longer.
            assert time.monotonic() - begun < 60


@row(161)
@both
@pytest.mark.parametrize("known", [True, False], ids=["known", "to be read"])
async def test_with_memory_one_read_at_most_stands_before_the_upstream(
    data, stream, known, monkeypatch
):
    """On SQLite none where the turn before left what it knows.

    The write that makes the request durable runs beside the upstream's work: here it ends only once
    the upstream was asked.
    """
    reached, reads, before = asyncio.Event(), [], []
    read, write = Database.read, Database.write

    async def counted(self, work, deadline=None, **how):
        reads.append(deadline)
        return await read(self, work, deadline, **how)

    async def late(self, work, **how):
        await asyncio.wait_for(reached.wait(), 5)
        return await write(self, work, **how)

    async def first(seen, wire):
        before.append(list(reads))
        reached.set()
        await (up._streamed if stream else up._plain)(seen, wire, [calls(TEA)])

    async with Model("Warm.") as up, running(up.url, data) as live:
        await asyncio.wait_for(live.gateway.memory._ready.wait(), 10)
        await live.stop_worker()
        await live.gateway.keys.key_store.stop()
        await live.gateway.memory.retrieval.indexing.stop()
        # What they began is over.
        await live.gateway.memory.db.write(lambda conn: None)
        _, answer = await asked(live, stream, "warm up", user="ada")
        if not known:
            # Somebody else's, for all the turn knows.
            await live.gateway.memory.db.write(lambda conn: None)
        monkeypatch.setattr(Database, "read", counted)
        monkeypatch.setattr(Database, "write", late)
        up.script = [first, "Fine."]
        history = [
            {"role": "user", "content": "warm up"},
            {"role": "assistant", "content": "Warm."},
            {"role": "user", "content": "hi"},
        ]
        response, answer = await asked(live, stream, history, user="ada")
        assert (answer["choices"][0]["content"], response.headers["x-memory-status"]) == (
            "Fine.",
            "ok",
        )
        # On Postgres others write too: what is known is compared with the versions there.
        assert len(before[0]) == (0 if known and not stores.POSTGRES else 1)
        # Bounded.
        assert None not in before[0]


# Says which other machine or port the process speaks to, if any.
TELLING = (
    "import sys; sys.addaudithook(lambda event, args: event == 'socket.connect' and "
    f"print('CONNECTS', args[1:], file=sys.stderr)); {MAIN}"
)


def _floor():
    """Processor time that the libraries alone take to load on this machine as it is now."""
    code = (
        "import httptools, litestar, pydantic, sqlalchemy.ext.asyncio, uvicorn, time; "
        "print(time.process_time())"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


@row(164, 165)
async def test_one_file_and_sqlite_are_all_it_needs_and_it_is_there_at_once(tmp_path):
    used = []
    for code in (TELLING, ""):
        folder = tmp_path / str(len(used))
        async with child(folder, (ROOT / "config" / "gateway.toml").read_text(), code=code) as (
            gateway,
            client,
        ):
            assert (await client.get("/health")).status_code == 200
            used.append(gateway.cpu)
            if code:
                assert await settled(client) == {"status": "ok", "degraded": []}
                assert "CONNECTS" not in gateway.said
        assert {p.name for p in (folder / "data").iterdir()} <= {
            "mnemogate.db",
            "mnemogate.db-shm",
            "mnemogate.db-wal",
            "secret",
            "token",
            "running",
        }
    # On a machine with other things to do processor time grows, too: what the libraries take there
    # is the measure.
    assert min(used) < max(1.5, 2.5 * _floor()), used
