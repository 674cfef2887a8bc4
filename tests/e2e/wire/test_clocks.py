"""C.

Time: comments on quiet lines, the delay after which a status leaves, the three timers of an
upstream.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import running, said
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import (
    MODES,
    WAYS,
    asked,
    chunks,
    client,
    framed,
    hello,
    piece,
    strict,
    text,
    writing,
)
from tests.models import Model, call, calls
from tests.sockets import within

NOTE = b": keep-alive"
REMEMBER = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
RAW = framed(*hello(finish=None), done=False)
TALK = hello()


def notes(body):
    return body.count(NOTE)


def timed(**limits):
    return {"providers": {"openai": {"base_url": "x", "timeouts": limits}}, "routing.retries": 0}


def halting(*parts, seconds=0.4):
    """Writes these parts with a long silence between them."""
    return writing(*parts, then="end", pause=seconds)


@row(60)
@MODES
async def test_a_quiet_stream_gets_comments_between_events(data, mode):
    """Also where an event is begun and not finished: what was begun waits, whole."""
    raw = framed(*TALK)
    at = raw.index(b"Hel") + 1
    async with (
        Model(halting(raw[:20], raw[20:at], raw[at:-20], raw[-20:])) as up,
        running(
            up.url, data, {"server.keepalive_seconds": 0.1, "server.commit_seconds": 0.1}
        ) as live,
    ):
        body = await asked(live, mode)
        assert notes(body) >= 3
        assert strict(body, comments=True) == [*TALK, "[DONE]"]


@row(60)
@MODES
async def test_an_event_that_drips_in_is_a_quiet_line(data, mode):
    event = text(piece({"content": "x" * 40}))
    drips = [event[i : i + 8] for i in range(0, len(event), 8)]
    async with Model(
        writing(
            framed(TALK[0], done=False) + b"data: ",
            *drips,
            b"\n\n" + framed(piece(finish="stop")),
            then="end",
            pause=0.05,
        )
    ) as up:
        async with running(up.url, data, {"server.keepalive_seconds": 0.2}) as live:
            body = await asked(live, mode)
            assert notes(body)
            assert said(strict(body, comments=True)) == "x" * 40


@row(60)
@MODES
async def test_without_an_interval_there_are_no_comments(data, mode):
    async with (
        Model(halting(RAW, framed(TALK[-1]))) as up,
        running(
            up.url, data, {"server.keepalive_seconds": 0, "server.commit_seconds": 0.1}
        ) as live,
    ):
        assert await asked(live, mode) == framed(*TALK)


@row(60)
@MODES
async def test_a_busy_stream_has_no_comments(data, mode):
    async with Model(
        writing(
            *(framed(e, done=False) for e in hello(*"abcdefgh")), framed(), then="end", pause=0.05
        )
    ) as up:
        async with running(up.url, data, {"server.keepalive_seconds": 0.6}) as live:
            assert await asked(live, mode) == framed(*hello(*"abcdefgh"))


@row(60)
@MODES
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_plain_answer_has_no_comments(data, mode, path):
    async def slow(seen, wire):
        await asyncio.sleep(0.3)
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n"
        )
        body = (
            b'{"choices":[{"index":0,"message":{"content":"Hello there"},"finish_reason":"stop"}]}'
        )
        for part in (body[:9], body[9:]):
            await asyncio.sleep(0.3)
            await wire.raw(part)

    async with (
        Model(slow) as up,
        running(
            up.url, data, {"server.keepalive_seconds": 0.1, "server.commit_seconds": 0.1}
        ) as live,
    ):
        response = await live.http.post(
            live.root + path,
            json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
            headers={"x-memory": mode},
        )
        assert response.json()["choices"][0]["message"]["content"] == "Hello there"


@row(60)
async def test_comments_go_on_while_a_hidden_round_runs(data):
    """The first round shows nothing but its start; the second is slow."""
    async with (
        Model(REMEMBER, halting(b": wait\n\n", framed(*TALK))) as up,
        running(up.url, data, {"server.keepalive_seconds": 0.1}) as live,
    ):
        body = await asked(live, "full")
        assert notes(body) >= 2
        assert said(strict(body, comments=True)) == "Hello"


@row(60)
@MODES
@pytest.mark.parametrize("field", [b"id: 7\n", b"retry: 10\n", b"event: message\n", b""])
async def test_the_official_client_reads_a_stream_with_comments(data, sdk, mode, field):
    """After an `id` line its decoder takes a comment and a blank line for an empty event, and
    fails.
    """
    raw = b"".join(field + framed(e, done=False) for e in TALK)
    at = raw.index(b"lo") - 100
    parts = raw[: raw.rindex(b"data", 0, at)], raw[raw.rindex(b"data", 0, at) :] + framed()
    parts = (parts[0].removesuffix(field), field + parts[1])
    async with (
        Model(halting(*parts, seconds=0.5)) as up,
        running(up.url, data, {"server.keepalive_seconds": 0.1}) as live,
    ):
        async with sdk(live, default_headers={"x-memory": mode}) as c:
            stream = await c.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            assert (
                "".join([ch.delta.content or "" async for e in stream for ch in e.choices])
                == "Hello"
            )
        assert NOTE in await asked(live, mode)


@row(61)
async def test_nothing_is_written_before_the_upstreams_status_or_the_delay(data):
    go = asyncio.Event()

    async def late(seen, wire):
        await go.wait()
        await wire.json(
            {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}},
            429,
            "retry-after: 7",
            "x-should-retry: false",
        )

    for commit, status in ((30, 429), (0.2, 200)):
        go.clear()
        async with (
            Model(late) as up,
            running(
                up.url,
                data / str(commit),
                {"server.keepalive_seconds": 0.05, "server.commit_seconds": commit},
            ) as live,
        ):
            async with client(live.root) as c:
                if status == 429:
                    assert await c.quiet(0.4)
                    go.set()
                assert await c.status() == status
                if status == 429:
                    assert b"retry-after: 7" in c.head.lower()
                    assert b"rate_limit_exceeded" in await c.until(b"}}")
                    continue
                assert (await c.part()).startswith(NOTE)
                go.set()
                body = b""
                while part := await c.part():
                    body += part
                assert strict(body, comments=True) == [
                    {
                        "error": {
                            "message": "slow down",
                            "type": "requests",
                            "code": "rate_limit_exceeded",
                        }
                    }
                ]


@row(61)
async def test_an_answer_after_the_delay_is_an_ordinary_stream(data):
    async def late(seen, wire):
        await asyncio.sleep(0.4)
        await writing(framed(*TALK), then="end")(seen, wire)

    async with Model(late) as up, running(up.url, data, {"server.commit_seconds": 0.1}) as live:
        body = await asked(live, "full")
        assert notes(body) >= 1
        assert strict(body, comments=True) == [*TALK, "[DONE]"]


async def nothing(seen, wire):
    await asyncio.sleep(30)


async def status_only(seen, wire):
    await wire.start_stream()
    await asyncio.sleep(30)


async def dripping(seen, wire):
    await wire.start_stream()
    await wire.part(framed(TALK[0], done=False))
    while True:
        await wire.part(framed(piece({"content": "a"}), done=False))
        await asyncio.sleep(0.1)


async def half_json(seen, wire):
    await wire.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n{"
    )
    await asyncio.sleep(30)


CLOCKS = [
    (nothing, {"first_token": 0.4}, "first_token_timeout"),
    (status_only, {"first_token": 0.4}, "first_token_timeout"),
    (nothing, {"total": 0.4}, "total_timeout"),
    (writing(RAW, then="hold"), {"idle": 0.4}, "stream_idle_timeout"),
    (dripping, {"total": 0.4}, "total_timeout"),
    (half_json, {"idle": 0.4}, "stream_idle_timeout"),
]


@row(62)
@MODES
@WAYS
@pytest.mark.parametrize(
    ("how", "limits", "code"),
    CLOCKS,
    ids=["nothing", "status only", "total, nothing", "idle", "total, dripping", "half a body"],
)
async def test_each_timer_ends_the_answer_with_its_own_code(data, mode, stream, how, limits, code):
    # Which has its total time alone.
    if not stream:
        limits, code = {"total": 0.4}, "total_timeout"
    async with Model(how) as up, running(up.url, data, timed(**limits)) as live:
        await live.gateway.memory.wait_until_ready()
        asked = asyncio.ensure_future(
            live.chat("hi", {"x-memory": mode}, stream=stream, user="ada")
        )
        # The limit and the second after it.
        assert await within(1.4 + 1, asked.done)
        if mode == "off" and how is half_json:
            # The status has left and the bytes are JSON's: breaking off is all that can be told.
            with pytest.raises(Exception, match=r"peer closed|incomplete"):
                await asked
        else:
            response = await asked
            if response.status_code == 200:
                assert strict(response.content)[-1]["error"]["code"] == code
            else:
                assert (response.status_code, response.json()["error"]["code"]) == (504, code)
        # None, where the machine took the whole time to reach it.
        for seen in up.requests:
            await seen.leaves()


@row(62)
async def test_a_timer_after_the_status_left_is_told_in_band(data):
    async with (
        Model(nothing) as up,
        running(up.url, data, {**timed(first_token=0.5), "server.commit_seconds": 0.1}) as live,
    ):
        async with client(live.root) as c:
            assert await c.status() == 200
            body = b""
            while part := await c.part():
                body += part
        assert [e["error"]["code"] for e in strict(body, comments=True)] == ["first_token_timeout"]
        await up.requests[0].leaves()


@row(62)
async def test_comments_of_the_upstream_are_signs_of_life(data):
    raw = [b": OPENROUTER PROCESSING\n\n"] * 10
    async with (
        Model(writing(*raw, framed(*TALK), then="end", pause=0.1)) as up,
        running(up.url, data, timed(first_token=0.5, idle=0.5)) as live,
    ):
        assert said(await chunks(live, "full")) == "Hello"
