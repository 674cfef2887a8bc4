"""D.

Shutting down: live answers finish, nothing new begins, and no step holds the process for ever.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time

import httpx
import pytest

from tests.conftest import events, said
from tests.e2e.wire.rows import row
from tests.gateway.cli.command import Process, started
from tests.models import Model

CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
KEY = {"authorization": "Bearer sk-any"}


def streaming(words, pause=0.3, endless=False):
    async def behave(seen, wire):
        await wire.start_stream()
        while True:
            for word in words:
                await wire.event(
                    {
                        **CHUNK,
                        "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}}],
                    }
                )
                await asyncio.sleep(pause)
            if not endless:
                break
        await wire.event({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        await wire.event(b"[DONE]")
        await wire.end()

    return behave


async def opened(process: Process, up: Model, **more: float):
    """Asks two streams, with memory and without; gives their texts to come, once both have
    begun.
    """

    async def asked(memory):
        async with httpx.AsyncClient(timeout=30) as client:
            sent = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            return (
                await client.post(
                    f"{process.url}/v1/chat/completions",
                    json=sent,
                    headers={**KEY, "x-memory": memory},
                )
            ).text

    tasks = [asyncio.create_task(asked(memory)) for memory in ("full", "off")]
    async with asyncio.timeout(20):
        while len(up.requests) < len(tasks):
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    return tasks


async def ended(process: Process) -> int:
    return await asyncio.to_thread(process.popen.wait, 20)


def serve(data, up, **env):
    return started(data, "serve", "--port", "0", "--upstream", up.url, **env)


@row(74)
async def test_live_streams_finish_and_nothing_new_begins_after_a_sigterm(data):
    async with Model(streaming(["one ", "two ", "three ", "four "])) as up:
        with serve(data, up) as process:
            tasks = await opened(process, up)
            process.popen.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            async with httpx.AsyncClient(timeout=10) as client:
                assert (await client.get(f"{process.url}/ready")).status_code == 503
                assert (await client.get(f"{process.url}/health")).status_code == 200
                refused = await client.post(
                    f"{process.url}/v1/embeddings", json={"model": "m", "input": "x"}, headers=KEY
                )
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) >= 0
            for text in await asyncio.gather(*tasks):
                assert said(events(text)) == "one two three four "
                assert events(text)[-1] == "[DONE]"
            assert await ended(process) == 0


@row(74, 75)
async def test_streams_that_outlast_the_drain_are_told_and_the_exit_code_is_0(data):
    async with Model(streaming(["word "], 0.05, endless=True)) as up:
        with serve(data, up, MNEMOGATE_SERVER__DRAIN_SECONDS="1") as process:
            tasks = await opened(process, up)
            begun = time.monotonic()
            process.popen.send_signal(signal.SIGTERM)
            for text in await asyncio.gather(*tasks):
                *found, last = events(text)
                assert said(found).startswith("word word")
                assert last["error"]["code"] == "unavailable"
                assert "[DONE]" not in found
            assert await ended(process) == 0
            assert time.monotonic() - begun < 1 + 30


@row(75)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_never_answers_does_not_hold_the_exit(data, stream):
    async def never(seen, wire):
        await asyncio.sleep(600)

    async with Model(never) as up:
        with serve(data, up, MNEMOGATE_SERVER__DRAIN_SECONDS="0.5") as process:
            async with httpx.AsyncClient(timeout=30) as client:
                sent = {
                    "model": "m",
                    "messages": [{"role": "user", "content": "hi"}],
                    "stream": stream,
                }
                asked = [
                    asyncio.create_task(
                        client.post(
                            f"{process.url}/v1/chat/completions",
                            content=json.dumps(sent),
                            headers={**KEY, "x-memory": m},
                        )
                    )
                    for m in ("full", "off")
                ]
                while len(up.requests) < 2:
                    await asyncio.sleep(0.02)
                begun = time.monotonic()
                process.popen.send_signal(signal.SIGTERM)
                for response in await asyncio.gather(*asked):
                    assert (response.status_code, response.json()["error"]["code"]) == (
                        503,
                        "unavailable",
                    )
                assert await ended(process) == 0
                assert time.monotonic() - begun < 0.5 + 30
