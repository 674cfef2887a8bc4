"""One suite over every kind of upstream, on real sockets: the same requests, answers, errors and
endings, whoever is behind it.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.errors import StreamIncomplete, UpstreamRefused
from gateway.routing.failures import is_overflow
from gateway.upstream.azure import AzureUpstream
from gateway.upstream.base import UpstreamRequest
from gateway.upstream.http1 import Http1Client
from gateway.wire.chat import fold
from tests.conftest import events
from tests.contract.kinds import ANTHROPIC, KINDS
from tests.contract.messages_server import events_of, written
from tests.models import call, calls, text

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
modes = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
HEADERS = [
    (b"content-type", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"authorization", b"Bearer sk-key"),
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": n,
            "description": "d",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for n in ("get_weather", "get_time")
]
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@pytest.fixture
async def pool():
    it = Http1Client()
    yield it
    await it.aclose()


def asked(stream: bool = False, **body) -> UpstreamRequest:
    body = {
        "model": "claude-haiku-4-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "tools": TOOLS,
        **body,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return UpstreamRequest(
        "/chat/completions", json.dumps(body).encode(), HEADERS, model=body["model"]
    )


async def completion(upstream, stream: bool, **body) -> dict:
    """The answer as a completion, in either mode; a stream must end with `[DONE]`."""
    incoming = await upstream.send(asked(stream, **body))
    data = await incoming.read()
    assert incoming.status == 200, data
    assert incoming.is_events == stream
    if not stream:
        return json.loads(data)
    found = events(data.decode())
    assert found[-1] == "[DONE]"
    return fold(found[:-1])


@kinds
@modes
async def test_text_comes_with_its_finish_and_usage(pool, kind, stream):
    async with kind.server("Hello there, you.") as server:
        answer = await completion(kind.upstream(server, pool), stream)
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (
            "Hello there, you.",
            "stop",
        )
        assert USAGE.items() <= answer["usage"].items()
        assert answer["object"] == "chat.completion"
        assert server.requests[0].header(kind.key) in ("sk-key", "Bearer sk-key")


@kinds
@modes
async def test_parallel_calls_come_whole_and_in_order(pool, kind, stream):
    script = calls(
        call("get_weather", {"city": "Tromsø"}, "call_a"),
        call("get_time", {}, "call_b"),
        content="One moment.",
    )
    async with kind.server(script) as server:
        choice = (await completion(kind.upstream(server, pool), stream))["choices"][0]
        found = [
            (c["id"], c["type"], c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in choice["message"]["tool_calls"]
        ]
        assert found == [
            ("call_a", "function", "get_weather", {"city": "Tromsø"}),
            ("call_b", "function", "get_time", {}),
        ]
        assert (choice["message"]["content"], choice["finish_reason"]) == (
            "One moment.",
            "tool_calls",
        )


@kinds
async def test_a_stream_adds_up_to_the_whole_answer(pool, kind):
    for script in (
        "Hi.",
        text("cut", "length"),
        calls(call("get_weather", {"city": "Oslo"}), call("get_time", {})),
        calls(call("get_time", {}), content="Well,"),
    ):
        found = []
        for stream in (False, True):
            async with kind.server(script) as server:
                answer = await completion(kind.upstream(server, pool), stream)
                choice = answer["choices"][0]
                for c in choice["message"].get("tool_calls") or []:
                    c["function"]["arguments"] = json.loads(c["function"]["arguments"])
                content = {"content": choice["message"].get("content") or None}
                found.append(
                    ({**choice, "message": {**choice["message"], **content}}, answer["usage"])
                )
        assert found[0] == found[1]


@kinds
@modes
async def test_results_of_calls_go_back(pool, kind, stream):
    history = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                call("get_weather", {"city": "A"}, "call_1"),
                call("get_time", {}, "call_2"),
            ],
        },
        {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    async with kind.server("Rain at noon.") as server:
        answer = await completion(kind.upstream(server, pool), stream, messages=history)
        assert answer["choices"][0]["message"]["content"] == "Rain at noon."
        assert "rain" in json.dumps(server.bodies[0])


@kinds
@modes
@pytest.mark.parametrize(
    ("status", "kindly"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
async def test_a_refusal_keeps_its_status_its_words_and_its_advice(
    pool, kind, stream, status, kindly
):
    async with kind.server(
        (status, kind.error(kindly, "Because."), "retry-after: 7", "x-should-retry: true")
    ) as server:
        incoming = await kind.upstream(server, pool).send(asked(stream))
        body = json.loads(await incoming.read())
        assert incoming.status == status
        assert (body["error"]["message"], body["error"]["type"]) == ("Because.", kindly)
        assert {"param", "code"} <= set(body["error"])
        assert (incoming.header(b"retry-after"), incoming.header(b"x-should-retry")) == (
            b"7",
            b"true",
        )


@kinds
async def test_an_overflow_is_known_in_every_dialect(pool, kind):
    async with kind.server((400, kind.error("invalid_request_error", kind.overflow))) as server:
        incoming = await kind.upstream(server, pool).send(asked())
        assert is_overflow(UpstreamRefused(incoming.status, await incoming.read()))


@kinds
async def test_what_is_no_json_comes_as_it_is(pool, kind):
    async def page(seen, wire):
        await wire.answer(503, b"<html>busy</html>", content_type="text/html")

    async with kind.server(page) as server:
        incoming = await kind.upstream(server, pool).send(asked())
        assert (incoming.status, await incoming.read()) == (503, b"<html>busy</html>")


def begun(kind) -> list[bytes]:
    """The first events of a stream that says `Hel`, each as bytes."""
    if kind is ANTHROPIC:
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "Hel"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        return [written(e) for e in events_of(message)[:4]]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [{"role": "assistant", "content": ""}, {"content": "Hel"}]
    return [
        b"data: "
        + json.dumps(
            {**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]}
        ).encode()
        + b"\n\n"
        for d in deltas
    ]


@kinds
async def test_an_event_is_told_before_the_next_one_comes(pool, kind):
    heard = asyncio.Event()

    async def slowly(seen, wire):
        await wire.start_stream()
        for event in begun(kind):
            await wire.part(event)
        await asyncio.wait_for(heard.wait(), 5)
        await wire.end()

    async with kind.server(slowly) as server:
        incoming = await kind.upstream(server, pool).send(asked(stream=True))
        data = b""
        async for part in incoming.body:
            data += part
            if b"Hel" in data:
                heard.set()
        assert heard.is_set()


@kinds
@pytest.mark.parametrize("how", ["ends", "breaks"])
async def test_a_cut_stream_has_neither_a_finish_nor_a_done(pool, kind, how):
    async def cut(seen, wire):
        await wire.start_stream()
        for event in begun(kind):
            await wire.part(event)
        if how == "ends":
            await wire.end()
        else:
            await asyncio.sleep(0.05)
            wire.reset()

    async with kind.server(cut) as server:
        incoming = await kind.upstream(server, pool).send(asked(stream=True))
        data = b""
        try:
            async for part in incoming.body:
                data += part
            assert how == "ends"
        except StreamIncomplete:
            assert how == "breaks"
        found = events(data.decode())
        assert "[DONE]" not in found
        assert not [c for e in found for c in e["choices"] if c.get("finish_reason")]
        assert fold(found)["choices"][0]["message"]["content"] == "Hel"


@kinds
async def test_an_error_in_a_stream_is_its_last_event(pool, kind):
    async def failing(seen, wire):
        await wire.start_stream()
        for event in begun(kind):
            await wire.part(event)
        fault = kind.error("overloaded_error", "Overloaded")
        await wire.part(
            (b"event: error\n" if kind is ANTHROPIC else b"")
            + b"data: "
            + json.dumps(fault).encode()
            + b"\n\n"
        )
        await wire.end()

    async with kind.server(failing) as server:
        incoming = await kind.upstream(server, pool).send(asked(stream=True))
        found = events((await incoming.read()).decode())
        assert found[-1]["error"]["message"] == "Overloaded"
        assert [e for e in found if "error" in e] == found[-1:]
        if kind is ANTHROPIC:
            assert found[-1]["error"]["status"] == 529


@kinds
@pytest.mark.parametrize("phase", ["before headers", "before the body", "mid-stream"])
async def test_a_cancelled_call_closes_the_connection_within_a_second(pool, kind, phase):
    reached = asyncio.Event()

    async def stalling(seen, wire):
        if phase != "before headers":
            await wire.start_stream()
        if phase == "mid-stream":
            for event in begun(kind):
                await wire.part(event)
        reached.set()
        await asyncio.sleep(30)

    async def whole(upstream):
        await (await upstream.send(asked(stream=True))).read()

    async with kind.server(stalling) as server:
        task = asyncio.create_task(whole(kind.upstream(server, pool)))
        await reached.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.requests[0].leaves()


@kinds
async def test_an_unread_answer_is_closed_at_once(pool, kind):
    async def stalling(seen, wire):
        await wire.start_stream()
        await asyncio.sleep(30)

    async with kind.server(stalling) as server:
        incoming = await kind.upstream(server, pool).send(asked(stream=True))
        await incoming.close()
        await server.requests[0].leaves()


@kinds
async def test_a_finished_stream_leaves_its_connection_for_the_next(pool, kind):
    async with kind.server("Hi.") as server:
        upstream = kind.upstream(server, pool)
        for _ in range(3):
            incoming = await upstream.send(asked(stream=True))
            async for data in incoming.body:
                if b"[DONE]" in data:
                    break
            await incoming.wait_for_end()
            await incoming.close()
        await asyncio.sleep(0.05)
        assert server.open == 1


@kinds
async def test_other_paths_go_through_with_the_providers_key(pool, kind):
    async def listing(seen, wire):
        await wire.json({"data": [{"id": "one"}]})

    async with kind.server(listing) as server:
        incoming = await kind.upstream(server, pool).send(
            UpstreamRequest("/models?limit=5", None, HEADERS, "GET")
        )
        assert incoming.status == 200
        assert "data" in json.loads(await incoming.read())
        assert "limit=5" in server.requests[0].path


@pytest.mark.parametrize(
    ("base", "path", "model", "body", "sent"),
    [
        (
            "",
            "/chat/completions",
            "my/gpt 4",
            {},
            "/openai/deployments/my%2Fgpt%204/chat/completions?api-version=2024-10-21",
        ),
        (
            "/openai",
            "/embeddings?x=1",
            "",
            {"model": "e5"},
            "/openai/deployments/e5/embeddings?x=1&api-version=2024-10-21",
        ),
        ("/openai/", "/models", "", None, "/openai/models?api-version=2024-10-21"),
        ("", "/responses", "gpt", {"model": "gpt"}, "/openai/responses?api-version=2024-10-21"),
        (
            "",
            "/files/f1/content?api-version=2025-04-01-preview",
            "",
            None,
            "/openai/files/f1/content?api-version=2025-04-01-preview",
        ),
        ("/openai/v1", "/chat/completions", "gpt", {}, "/openai/v1/chat/completions"),
        ("/openai/v1/", "/models?limit=1", "", None, "/openai/v1/models?limit=1"),
    ],
)
async def test_azure_addresses(pool, base, path, model, body, sent):
    async def ok(seen, wire):
        await wire.json({})

    async with KINDS[0].server(ok) as server:
        upstream = AzureUpstream(server.url.removesuffix("/v1") + base, pool)
        data = None if body is None else json.dumps(body).encode()
        await (
            await upstream.send(
                UpstreamRequest(path, data, HEADERS, "GET" if data is None else "POST", model=model)
            )
        ).read()
        assert server.requests[0].path == sent


@pytest.mark.parametrize(
    ("credential", "header"),
    [
        ("Bearer 0123abcd", "api-key"),
        ("Bearer eyJhbGciOi.eyJhdWQi.c2ln", "authorization"),
        ("Bearer eyJnot-a-token", "api-key"),
    ],
)
async def test_an_azure_key_and_an_entra_token_go_where_they_belong(pool, credential, header):
    async def ok(seen, wire):
        await wire.json({})

    async with KINDS[0].server(ok) as server:
        await (
            await KINDS[1]
            .upstream(server, pool)
            .send(
                UpstreamRequest("/models", None, [(b"authorization", credential.encode())], "GET")
            )
        ).read()
        seen = server.requests[0]
        assert [h for h in ("api-key", "authorization") if seen.header(h)] == [header]
        assert seen.header(header) == (
            credential if header == "authorization" else credential.removeprefix("Bearer ")
        )


async def test_azures_first_chunk_passes(pool):
    async with KINDS[1].server("Hi.") as server:
        incoming = await KINDS[1].upstream(server, pool).send(asked(stream=True))
        assert b"prompt_filter_results" in await incoming.read()


async def headers_seen(pool, *more, path="/models", **members):
    async def ok(seen, wire):
        await wire.json(
            {"type": "none"}, 200, "request-id: req_9", "anthropic-ratelimit-tokens-remaining: 5"
        )

    async with KINDS[0].server(ok) as server:
        incoming = await ANTHROPIC.upstream(server, pool, **members).send(
            UpstreamRequest(path, None, more, "GET")
        )
        await incoming.read()
        return server.requests[0], incoming


async def test_anthropic_gets_its_version_and_the_clients_beta(pool):
    key = (b"authorization", b"Bearer sk-ant-api03-x")
    seen, incoming = await headers_seen(pool, key, (b"anthropic-beta", b"files-api-2025-04-14"))
    assert (
        seen.header("anthropic-version"),
        seen.header("anthropic-beta"),
        seen.header("x-api-key"),
    ) == ("2023-06-01", "files-api-2025-04-14", "sk-ant-api03-x")
    assert seen.header("authorization") is None
    assert (
        incoming.header(b"x-request-id"),
        incoming.header(b"anthropic-ratelimit-tokens-remaining"),
    ) == (b"req_9", b"5")
    seen, _ = await headers_seen(pool, key, api_version="2024-01-01")
    assert seen.header("anthropic-version") == "2024-01-01"
    seen, _ = await headers_seen(
        pool, key, (b"anthropic-version", b"2025-05-05"), api_version="2024-01-01"
    )
    assert seen.header("anthropic-version") == "2025-05-05"


async def test_an_oauth_token_stays_a_bearer(pool):
    seen, _ = await headers_seen(pool, (b"authorization", b"Bearer sk-ant-oat01-x"))
    assert (seen.header("authorization"), seen.header("x-api-key")) == (
        "Bearer sk-ant-oat01-x",
        None,
    )


@pytest.mark.parametrize(
    "told", [[], ["one-1,two-2"], ["thinking-binding-controls-2026-08-01, one-1"]]
)
async def test_the_clients_betas_stay_beside_the_one_that_thinking_needs(pool, told):
    thinking = [{"type": "thinking", "thinking": "", "signature": "s"}]
    history = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("get_time", {})],
            "thinking_blocks": thinking,
        },
        {"role": "tool", "tool_call_id": "call_get_time", "content": "noon"},
    ]
    async with ANTHROPIC.server("Noon.") as server:
        request = asked(messages=history, model="claude-opus-5-5")
        request.headers = [*HEADERS, *((b"anthropic-beta", v.encode()) for v in told)]
        assert (await ANTHROPIC.upstream(server, pool).send(request)).status == 200
        names = (server.requests[0].header("anthropic-beta") or "").split(",")
        assert sorted(names) == sorted(
            {
                "thinking-binding-controls-2026-08-01",
                *(n.strip() for v in told for n in v.split(",")),
            }
        )
