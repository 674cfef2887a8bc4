"""A whole gateway on a real Postgres: what a turn asks of it, what others change, and its faults.

The rest of the suite runs on it with `make test-postgres`.
"""

from __future__ import annotations

import asyncio

import pytest

from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import ADA, Chat, storage
from tests.e2e.round_trips import CountingProxy
from tests.models import Model, text
from tests.sockets import within

# The model is asked nothing beside.
ALONE = {"memory.extract": "off"}


async def test_an_edit_at_one_gateway_is_in_the_next_request_at_another(
    postgres_url, data, tmp_path
):
    """Each compares what it kept: an acknowledged edit is never late."""
    async with (
        Model(text("so be it")) as up,
        running(up.url, data, storage(postgres_url, **ALONE)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url, **ALONE)) as two,
    ):
        chat = Chat()
        await chat.say(one, "hello")
        for i in range(12):
            where, other = (one, two) if i % 2 else (two, one)
            await chat.say(where, f"turn {i}")
            edited = await other.memory(
                "PUT", "/users/ada/blocks/human", json={"value": f"likes tea of kind {i}"}
            )
            assert edited.status_code in (200, 201), edited.text
            await chat.say(where, "what do I like?")
            assert f"tea of kind {i}" in str(up.bodies[-1]["messages"])
        found = (await one.memory("GET", "/users/ada/conversations")).json()["data"]
        assert len(found) == 1


async def test_a_user_who_is_erased_elsewhere_is_unknown_here(postgres_url, data, tmp_path):
    async with (
        Model(text("so be it")) as up,
        running(up.url, data, storage(postgres_url)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url)) as two,
    ):
        chat = Chat()
        await chat.say(one, "hello")
        edited = await one.memory("PUT", "/users/ada/blocks/human", json={"value": "sentinel-7d31"})
        assert edited.status_code in (200, 201), edited.text
        await chat.say(one, "again")
        assert "sentinel-7d31" in str(up.bodies[-1])
        assert (await two.memory("DELETE", "/users/ada")).status_code == 200
        await chat.say(one, "and now?")
        assert "sentinel-7d31" not in str(up.bodies[-1])
    rows = stores.on_server(postgres_url, "SELECT count(*) FROM blocks")
    assert rows[0][0] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_says_nothing_costs_memory_and_no_answer(postgres_url, data, stream):
    # The first turn connects.
    quick = {"memory.read_deadline_ms": 600}
    async with (
        CountingProxy(postgres_url) as proxy,
        Model(text("so be it")) as up,
        running(up.url, data, storage(proxy.url, **quick)) as live,
    ):
        chat = Chat()
        await chat.say(live, "hello")
        proxy.passes.clear()
        lost = await live.chat("hello?", ADA, stream=stream)
        assert (lost.status_code, lost.headers["x-memory-status"]) == (200, "degraded")
        proxy.passes.set()

        async def well():
            found = await live.chat([*chat.history, {"role": "user", "content": "?"}], ADA)
            return found.headers["x-memory-status"] == "ok"

        for _ in range(50):
            if await well():
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the memory did not come back in 5 s")


async def test_a_gateway_with_another_secret_serves_without_memory_and_says_why(
    postgres_url, data, caplog
):
    wrong = storage(postgres_url) | {"storage.secret": "ee" * 32}
    async with Model(text("so be it")) as up, running(up.url, data, wrong) as live:
        assert await within(5, lambda: "storage.secret is not the secret" in caplog.text)
        found = await live.chat("hello", ADA)
        assert (found.status_code, found.headers["x-memory-status"]) == (200, "degraded")
