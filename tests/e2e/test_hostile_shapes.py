"""Requests and answers with a wrong value in any place: a client's fault is its own, an upstream's
is a clean error, nothing hangs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random

import pytest

from tests.conftest import events, running
from tests.e2e.mutations import wrong
from tests.models import Model, call

MODES = ["full", "read", "write", "off"]
# Variants a test tries, spread over thousands.
EACH = 8
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object"}},
}
REQUEST = {
    "model": "m",
    "user": "ada",
    "messages": [
        {"role": "system", "content": "Be kind"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "https://x/y"}},
                {"type": "input_audio", "input_audio": {"data": "AA"}},
            ],
            "name": "ada",
        },
        {"role": "assistant", "content": None, "tool_calls": [call("get_weather")]},
        {"role": "tool", "tool_call_id": "call_get_weather", "content": "sun"},
        {"role": "user", "content": "hi"},
    ],
    "tools": [WEATHER],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "stream_options": {"include_usage": True},
    "n": 1,
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "response_format": {"type": "json_object"},
    "metadata": {"a": "b"},
    "functions": None,
    "stream": False,
}
USAGE = {
    "prompt_tokens": 1,
    "completion_tokens": 2,
    "total_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 0},
}
CALLS = [
    call("core_memory_append", {"label": "human", "content": "x"}, "c0"),
    call("get_weather", {}, "c1"),
]
HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def whole(calls):
    message = {"role": "assistant", "content": "hi", "tool_calls": calls, "reasoning_content": "r"}
    return {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": {"content": []},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": USAGE,
    }


def chunks(calls):
    deltas = [
        ({"role": "assistant", "content": "hi"}, None),
        ({"tool_calls": [{"index": i, **c} for i, c in enumerate(calls)]}, None),
        ({}, "tool_calls"),
    ]
    return [
        *(
            {**HEAD, "choices": [{"index": 0, "delta": d, "finish_reason": f, "logprobs": None}]}
            for d, f in deltas
        ),
        {**HEAD, "choices": [], "usage": USAGE},
    ]


def sending(variant, stream):
    """What a hostile upstream does once; afterwards it is a good one."""

    async def answer(seen, wire):
        if not stream:
            return await wire.json(variant)
        await wire.start_stream()
        for event in variant if isinstance(variant, list) else [variant]:
            await wire.event(event)
        await wire.event(b"[DONE]")
        return await wire.end()

    return answer


def some(value, seed):
    return random.Random(seed).sample(list(wrong(value)), EACH)


async def at_once(tasks, width=4):
    """Runs them a few at a time, each within seconds."""
    gate = asyncio.Semaphore(width)

    async def one(task):
        async with gate:
            return await asyncio.wait_for(task, 15)

    return await asyncio.gather(*map(one, tasks))


def shaped(response):
    """An error of ours has the one shape and is no fault of the inside."""
    assert "internal_error" not in response.text
    if response.status_code >= 400:
        assert isinstance(response.json()["error"]["message"], str)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_a_request_with_anything_wrong_in_it_is_served_or_refused(data, mode, stream):
    async with Model("ok") as up, running(up.url, data) as live:
        variants = some({**REQUEST, "stream": stream}, f"{mode}{stream}")
        found = await at_once(
            [
                live.http.post(
                    f"{live.url}/chat/completions", json=body, headers={"x-memory": mode}
                )
                for _, body in variants
            ]
        )
        for (name, _), response in zip(variants, found, strict=True):
            assert response.status_code in (200, 400), (name, response.text)
            assert response.headers.get("x-memory-status") != "degraded", name
            shaped(response)


@pytest.mark.parametrize("calls", [CALLS, CALLS[:1], CALLS[1:]])
@pytest.mark.parametrize(
    ("sent", "asked"), [(False, False), (True, True), (False, True), (True, False)]
)
async def test_an_answer_with_anything_wrong_in_it_is_passed_on_or_a_clean_error(
    data, sent, asked, calls
):
    async with Model("ok") as up, running(up.url, data, {"routing.retries": 0}) as live:
        for name, variant in some(
            chunks(calls) if sent else whole(calls), f"{sent}{asked}{len(calls)}"
        ):
            up.script = [sending(variant, sent), "done"]
            mode = random.Random(name).choice(["full", "full", "read", "write"])
            response = await asyncio.wait_for(
                live.chat(
                    "hi",
                    {"x-memory": mode, "x-memory-user": name.encode().hex()[:900]},
                    tools=[WEATHER],
                    stream=asked,
                ),
                15,
            )
            shaped(response)
            assert response.status_code in (200, 502) or "error" in name, (name, response.text)
            if asked and response.status_code == 200:
                found = events(response.text)
                assert (found[-1] == "[DONE]") != ("error" in found[-1]), name


NO_JSON = [
    b"",
    b"\x00",
    b"\xff" * 100,
    b"data",
    b"[1",
    b"[[[[" * 30_000,
    b'{"choices":' * 30_000,
    b"null",
    b'{"choices":[{"index":0,"message":{"content":"\xff"}}]}',
    b"NaN",
    b'{"choices":[{"index":' + b"9" * 5000 + b"}]}",
    b'{"choices":1e999}',
]


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_answer_that_is_no_json_is_a_clean_error(data, mode):
    async with Model("ok") as up, running(up.url, data, {"routing.retries": 0}) as live:
        for (raw, kind), stream in zip(
            itertools.product(NO_JSON, ("application/json", "text/event-stream")),
            itertools.cycle((False, True, True, False)),
        ):
            up.script = [
                lambda seen, wire, raw=raw, kind=kind: wire.answer(
                    200, b"data: %s\n\n" % raw if "event" in kind else raw, content_type=kind
                )
            ]
            response = await asyncio.wait_for(
                live.chat("hi", {"x-memory": mode}, stream=stream), 15
            )
            if mode == "off":
                # Passed on as it came.
                assert raw in response.content
                continue
            shaped(response)
            assert response.status_code == 502 or (stream and "error" in events(response.text)[-1])


# The HTTP client's advice, not a fault.
@pytest.mark.filterwarnings("ignore:Sending a large body")
@pytest.mark.parametrize(
    ("mode", "size"), [("full", 2_000_000), ("read", 20_000_000), ("off", 20_000_000)]
)
async def test_a_huge_text_is_served(data, mode, size):
    async with (
        Model("ok") as up,
        running(up.url, data, {"memory.read_deadline_ms": 20_000}) as live,
    ):
        response = await live.chat("x" * size, {"x-memory": mode, "x-memory-user": "ada"})
        assert response.status_code == 200
        assert len(up.bodies[-1]["messages"][-1]["content"]) == size


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_doubled_members_are_taken_as_every_parser_takes_them(data, mode):
    raw = (
        b'{"model":"x","model":"m","messages":[],"messages":[{"role":"user","role":"user",'
        b'"content":"a","content":"b"}],"stream":true,"stream":false,"user":5,"user":"ada"}'
    )
    async with Model("ok") as up, running(up.url, data) as live:
        assert (
            await live.http.post(
                f"{live.url}/chat/completions", content=raw, headers={"x-memory": mode}
            )
        ).status_code == 200
        got = json.loads(up.requests[-1].body)
        assert (got["model"], got["messages"][-1]["content"], got["stream"]) == ("m", "b", False)


ODD = [
    "%",
    "%zz",
    "%C3",
    "%ff",
    "%ed%a0%80",
    "%00",
    "%0d%0aX-Evil:1",
    "a" * 1025,
    "a" * 70,
    "%20",
    "\xe9",
    "null",
    "[object Object]",
    "%E2%80%AE",
    "%u0041",
    "+",
    "a,b",
    ";",
    '"',
    "a\tb",
]
HEADERS = [
    "x-memory",
    "x-memory-user",
    "x-memory-agent",
    "x-memory-conversation",
    "idempotency-key",
    "x-stainless-retry-count",
]
OTHERS = [
    "if-match",
    "content-type",
    "accept",
    "x-client-request-id",
    "traceparent",
    "openai-beta",
    "user-agent",
]


@pytest.mark.parametrize("header", [*HEADERS, "others"])
async def test_a_header_of_any_value_is_served_or_refused(data, header):
    sent = (
        [(h, v) for h in OTHERS for v in ODD[::7]]
        if header == "others"
        else [(header, v) for v in [*ODD[:: 1 if header == "x-memory-user" else 2], "1" * 6000]]
    )
    async with Model("ok") as up, running(up.url, data) as live:
        for name, value in sent:
            response = await live.chat(
                "hi",
                {"x-memory-user": "ada", name: value.encode("latin-1")},
                stream=bool(len(value) % 2),
            )
            assert response.status_code in (200, 400), (value, response.text)
            assert "x-evil" not in response.headers
            shaped(response)
        assert all(s.header("x-evil") is None for s in up.requests)


async def raw_request(live, data):
    host, port = live.root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()


LENGTHS = [
    b"Content-Length: 5",
    b"Content-Length: 100000",
    b"Content-Length: -1",
    b"Content-Length: x",
    b"Content-Length: 18446744073709551617",
    b"Content-Length: 3\r\nContent-Length: 60",
    b"Content-Length: 3\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip",
    b"Content-Length: 0",
]


@pytest.mark.parametrize(
    "path", [b"/v1/chat/completions", b"/v1/embeddings", b"/memory/v1/users/ada/import"]
)
async def test_a_length_that_lies_reaches_no_upstream_as_a_whole(data, path):
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    async with Model(lambda seen, wire: wire.json({})) as up, running(up.url, data) as live:
        for length in LENGTHS:
            answer = await raw_request(
                live,
                b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\nConnection: "
                b"close\r\n%s\r\n\r\n%s" % (path, length, body),
            )
            assert b" 500 " not in answer
            assert b"internal_error" not in answer
        assert all(len(s.body) <= 5 for s in up.requests)
        assert (await live.http.get(f"{live.root}/health")).status_code == 200
