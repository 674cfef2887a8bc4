"""D.

Disconnects and resources: a client that leaves ends the work in every phase, and nothing is left
behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest

from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.e2e.wire.ways import ask, each_mode, each_way, provider
from tests.models import Model, call, calls
from tests.sockets import RawServer

REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
CHUNK = {
    "id": "1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}],
}


async def left(live, up, requests=1, before=0.05, **asked):
    """Asks, leaves once the upstream has seen so many requests, and waits for the upstream to see
    it go: a second at most.
    """
    task = asyncio.create_task(ask(live, **asked))
    async with asyncio.timeout(5):
        while len(up.requests) < requests:
            await asyncio.sleep(0.01)
    await asyncio.sleep(before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await up.requests[-1].leaves()


async def never(seen, wire):
    await asyncio.sleep(30)


async def talks(seen, wire):
    """Sends without an end, as the request asked."""
    if json.loads(seen.body).get("stream"):
        await wire.start_stream()
        while True:
            await wire.event(CHUNK)
            await asyncio.sleep(0.01)
    await wire.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"
    )
    while True:
        await wire.raw(b" ")
        await asyncio.sleep(0.01)


@row(66, 67)
@each_way
@each_mode
async def test_a_client_that_leaves_before_the_first_byte_ends_the_upstream_call(data, way, stream):
    async with RawServer(never) as up, running(up.url, data) as live:
        await left(live, up, way=way, stream=stream)


@row(65, 67)
@each_way
@each_mode
async def test_a_client_that_leaves_amid_the_answer_ends_the_upstream_call(data, way, stream):
    async with RawServer(talks) as up, running(up.url, data) as live:
        await left(live, up, way=way, stream=stream, before=0.2)


@row(66)
@each_mode
async def test_a_client_that_leaves_between_two_tries_starts_no_other(data, stream):
    async def busy(seen, wire):
        await wire.json({"error": {"message": "busy"}}, 503, "retry-after: 1")

    async with RawServer(busy) as up, running(up.url, data, {"routing.retries": 5}) as live:
        task = asyncio.create_task(ask(live, "full", stream))
        while not up.requests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(1.2)
        assert len(up.requests) == 1


@row(68)
@each_mode
async def test_a_client_that_leaves_in_a_tool_round_starts_no_other_and_the_write_is_whole(
    data, stream
):
    async with Model(REMEMBER, never, REMEMBER, "fine") as up, running(up.url, data) as live:
        await left(live, up, requests=2, way="full", stream=stream, user="ada")
        await asyncio.sleep(0.1)
        assert len(up.requests) == 2
        value = (
            await live.memory(
                "GET",
                "/users/ada/blocks/human",
                headers={"authorization": f"Bearer {live.gateway.keys._token}"},
            )
        ).json()["value"]
        assert value in ("", "Likes tea")
        assert not live.gateway.memory.in_flight.nodes


async def shortlived(live, up, rng):
    """One request that ends badly in one of the ways a client or an upstream has."""
    task = asyncio.create_task(ask(live, rng.choice(["full", "off", "relay"]), rng.random() < 0.6))
    await asyncio.sleep(rng.random() * 0.03)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def unkind(rng):
    async def behave(seen, wire):
        how = rng.randrange(7)
        stream = json.loads(seen.body).get("stream")
        if how == 0:
            await wire.json({"error": {"message": "no", "code": "x"}}, rng.choice([400, 429, 500]))
        elif how == 1:
            wire.reset()
        elif how == 2:
            await asyncio.sleep(5)
        elif how == 3 and stream:
            await wire.start_stream()
            await wire.event(CHUNK)
            wire.reset()
        elif how == 4 and stream:
            await wire.start_stream()
            await wire.part(b'data: {"cho')
            await asyncio.sleep(5)
        elif how == 5:
            await wire.raw(
                b"HTTP/1.1 500 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
                b"chunked\r\n\r\n"
            )
            await asyncio.sleep(5)
        else:
            await talks(seen, wire)

    return behave


@row(69, 71)
async def test_after_a_thousand_aborts_a_hundred_requests_wait_for_nothing(data):
    rng = random.Random(7)
    # As many places in the pool as run at once: one that leaked would be missed at the end.
    config = {**provider(max_connections=25, timeouts={"connect": 2}), "routing.retries": 0}
    good = Model("fine")
    async with RawServer(good._behave) as up, running(up.url, data, config) as live:
        await ask(live, "off")
        tasks, descriptors = (
            len(asyncio.all_tasks()),
            len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        )
        up.behave = unkind(rng)
        for _ in range(40):
            await asyncio.gather(*(shortlived(live, up, rng) for _ in range(25)))
        await live.http.aclose()

        up.behave = good._behave
        async with asyncio.timeout(20):
            while up.open > 25:
                await asyncio.sleep(0.05)
        async with type(live.http)(timeout=30, headers=dict(live.http.headers)) as fresh:
            live.http = fresh
            loop = asyncio.get_running_loop()
            begun = loop.time()
            for _ in range(4):
                answers = await asyncio.gather(
                    *(
                        ask(live, way, stream)
                        for way in ("full", "off")
                        for stream in (False, True)
                        for _ in range(6)
                    ),
                    ask(live, "off"),
                )
                assert {a.status_code for a in answers} == {200}
            assert loop.time() - begun < 15
        await asyncio.sleep(0.3)
        assert live.gateway.process.busy == 0
        assert not live.gateway.process.live
        assert not live.gateway.memory.in_flight.nodes
        # Those of connections that are kept open on both sides.
        assert len(asyncio.all_tasks()) <= tasks + 60
        if descriptors:
            assert len(os.listdir("/proc/self/fd")) <= descriptors + 60


@row(73)
@pytest.mark.parametrize("way", ["full", "off"])
async def test_a_full_pool_is_waited_for_within_the_connect_budget_then_503(data, way):
    async with (
        RawServer(never) as up,
        running(up.url, data, provider(max_connections=1, timeouts={"connect": 0.3})) as live,
    ):
        holder = asyncio.create_task(ask(live, way))
        while not up.requests:
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        refused = await ask(live, way)
        assert loop.time() - begun < 2
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
