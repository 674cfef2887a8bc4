"""A gateway killed without warning: what it promised is there, what it had not finished is resumed
and written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import sys
from pathlib import Path

import httpx

from memory.stores.sql.turns.journal_entries import decode_entry
from tests.models import Model, call, calls
from tests.sockets import free_port

ROOT = Path(__file__).parent.parent.parent
REMEMBER = calls(call("archival_memory_insert", {"content": "Ada likes tea."}, "call_0"))
ASK = {"model": "m", "messages": [{"role": "user", "content": "I like tea"}], "user": "ada"}


@contextlib.asynccontextmanager
async def spawned(upstream, data, **more):
    """A gateway in a process of its own: (its process, a client for it).

    more: settings for its environment.
    """
    port = free_port()
    env = {
        **os.environ,
        "MNEMOGATE_STORAGE__DATA": str(data),
        "MNEMOGATE_STORAGE__VECTORS": "none",
        "MNEMOGATE_MEMORY__READ_DEADLINE_MS": "2000",
        **more,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        "serve",
        "--port",
        str(port),
        "--upstream",
        upstream,
        cwd=ROOT,
        env=env,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"authorization": "Bearer k"}, timeout=20
    ) as client:
        try:
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await client.get("/ready")).json()["status"] == "ok":
                            break
                    await asyncio.sleep(0.05)
            yield child, client
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.wait()


def stored(data):
    """The messages that are durable, those of the journal last, and the passages."""
    with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as db:
        messages = [r[0] for r in db.execute("SELECT content FROM messages ORDER BY id")]
        for (entry,) in db.execute("SELECT entry FROM journal ORDER BY id"):
            turn = decode_entry(entry)
            rows = [*turn.opening.messages] if turn.opening is not None else []
            rows += itertools.chain(*turn.record.contents) if turn.record is not None else ()
            messages += [row["content"] for row in rows]
        return messages, [r[0] for r in db.execute("SELECT content FROM passages")]


async def test_a_killed_turn_resumes_and_writes_once(data):
    async def stall(seen, wire):
        await asyncio.sleep(60)

    async with Model(REMEMBER, stall, "Saved!") as up:
        async with spawned(up.url, data) as (child, client):
            task = asyncio.create_task(client.post("/v1/chat/completions", json=ASK))
            async with asyncio.timeout(10):
                while len(up.requests) < 2:
                    await asyncio.sleep(0.02)
            child.kill()
            await asyncio.gather(task, return_exceptions=True)
        async with spawned(up.url, data) as (_, client):
            answer = await client.post("/v1/chat/completions", json=ASK)
            assert answer.json()["choices"][0]["message"]["content"] == "Saved!"
    assert len(up.requests) == 3
    assert stored(data) == (["I like tea", "Saved!"], ["Ada likes tea."])


async def test_what_was_answered_survives_kill_9(data):
    async with Model(REMEMBER, "Noted.") as up:
        async with spawned(up.url, data) as (child, client):
            answer = await client.post("/v1/chat/completions", json={**ASK, "stream": True})
            assert answer.text.endswith("data: [DONE]\n\n")
            child.kill()
        assert stored(data) == (["I like tea", "Noted."], ["Ada likes tea."])


async def test_sigterm_lets_a_live_stream_finish_refuses_new_work_and_exits_0(data):
    go = asyncio.Event()

    async def slow(seen, wire):
        await wire.start_stream()
        await wire.event(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}],
            }
        )
        await go.wait()
        await wire.event(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            }
        )
        await wire.event(b"[DONE]")
        await wire.end()

    async with Model(slow) as up, spawned(up.url, data) as (child, client):
        async with client.stream(
            "POST", "/v1/chat/completions", json={**ASK, "stream": True}
        ) as response:
            lines = response.aiter_lines()
            await anext(lines)
            child.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert (await client.get("/ready")).status_code == 503
            assert (await client.post("/v1/chat/completions", json=ASK)).status_code == 503
            go.set()
            rest = [line async for line in lines]
        assert "data: [DONE]" in rest
        assert await asyncio.wait_for(child.wait(), 10) == 0
