"""Workers that have just started: their first turns come at once, and none goes without memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest

from gateway.demo_model.server import start as start_bundled
from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import storage
from tests.gateway.cli.command import started
from tests.models import Model, text
from tests.sockets import within

TURNS = 500


async def first_turns(url, count, *, stream):
    """First turns of as many users at once: how many had which status and reason."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits) as http:

        async def turn(number):
            answer = await http.post(
                f"{url}/v1/chat/completions",
                json={
                    "model": "m",
                    "stream": stream,
                    "messages": [{"role": "user", "content": f"hello from {number}"}],
                },
                headers={"authorization": "Bearer k", "x-memory-user": f"user-{number}"},
            )
            told = answer.headers
            return answer.status_code, told["x-memory-status"], told.get("x-memory-reason")

        return Counter(await asyncio.gather(*(turn(n) for n in range(count))))


@pytest.mark.parametrize("stream", [False, True])
def test_of_500_first_turns_at_four_new_workers_none_goes_without_memory(
    postgres_url, redis_server, tmp_path, stream
):
    env = {
        "MNEMOGATE_STORAGE__DATABASE": postgres_url,
        "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex(),
        "MNEMOGATE_STORAGE__REDIS": redis_server.url,
        "MNEMOGATE_SERVER__DRAIN_SECONDS": "2",
        "MNEMOGATE_MEMORY__EXTRACT": "off",
    }
    options = ("serve", "--workers", "4", "--port", "0")
    with (
        start_bundled() as bundled,
        started(tmp_path, *options, "--upstream", bundled.url, **env) as parent,
    ):
        until_alive(parent.url)
        seen = asyncio.run(first_turns(parent.url, TURNS, stream=stream))
        assert seen == {(200, "ok", None): TURNS}


def until_alive(url):
    """Until `/health` answers, and no longer."""
    end = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            assert time.monotonic() < end
            time.sleep(0.01)


async def test_a_worker_is_ready_when_its_connections_are(postgres_url, data):
    config = storage(postgres_url, **{"storage.pool": 5, "server.jobs": "false"})
    async with Model("ok") as up, running(up.url, data, config) as live:
        await live.gateway.memory.wait_until_ready()
        assert len(live.gateway.memory.db._connections._free_connections) == 5


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_waits_for_a_connection_has_its_memory(postgres_url, data, stream):
    """All connections are held for longer than any deadline of a turn's."""
    config = storage(postgres_url, **{"storage.pool": 2, "server.jobs": "false"})
    async with Model(text("ok")) as up, running(up.url, data, config) as live:
        memory = live.gateway.memory
        await memory.wait_until_ready()
        holding = [await memory.db._connections._take() for _ in range(2)]
        turn = asyncio.create_task(live.chat("hi", {"x-memory-user": "ada"}, stream=stream))
        await asyncio.sleep(2)
        assert not turn.done()
        for connection in holding:
            await memory.db._connections._give(connection)
        answer = await turn
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "ok")


async def test_a_turn_that_gets_no_connection_goes_without_memory(postgres_url, data, monkeypatch):
    monkeypatch.setattr("memory.stores.sql.engine.waiting.WAIT_SECONDS", 0.3)
    config = storage(postgres_url, **{"storage.pool": 2, "server.jobs": "false"})
    async with Model(text("ok")) as up, running(up.url, data, config) as live:
        memory = live.gateway.memory
        await memory.wait_until_ready()
        holding = [await memory.db._connections._take() for _ in range(2)]
        answer = await live.chat("hi", {"x-memory-user": "ada"})
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "degraded")
        for connection in holding:
            await memory.db._connections._give(connection)
        assert await within(10, lambda: memory.ready)
        answer = await live.chat("hi", {"x-memory-user": "bob"})
        assert (answer.status_code, answer.headers["x-memory-status"]) == (200, "ok")
