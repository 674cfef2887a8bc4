"""E.

Errors: the upstream's own words and status, our own in the right class, and nothing internal in
either.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3

import pytest

from tests.conftest import events, running
from tests.e2e.wire.rows import row
from tests.e2e.wire.ways import (
    GATEWAY_KEY,
    PROVIDER_KEY,
    WAYS,
    ask,
    each_mode,
    each_way,
    managed,
    provider,
)
from tests.models import Model, call, calls
from tests.sockets import RawServer

GUIDANCE = {
    "retry-after": "7",
    "retry-after-ms": "7123",
    "x-should-retry": "false",
    "x-ratelimit-limit-requests": "10",
    "x-ratelimit-remaining-tokens": "0",
    "x-request-id": "req_up",
}
LINES = [f"{k}: {v}" for k, v in GUIDANCE.items()]
BODY = {
    "error": {
        "message": "Überlast — later",
        "type": "t",
        "param": None,
        "code": "c",
        "extra": {"deep": [1, None]},
    },
    "beside": 1,
}


def refuses(status, body=BODY, *lines):
    async def behave(seen, wire):
        await wire.json(body, status, *lines)

    return behave


def own_error(response, status, code=None):
    """The shape of an error of ours; returns it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    for member in ("param", "code"):
        assert error[member] is None or isinstance(error[member], str)
    assert not {"None", "null", ""} & {error[m] for m in error}
    assert code is None or error["code"] == code
    return error


@row(77, 82)
@each_way
@each_mode
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422, 429, 500, 503, 529])
async def test_an_upstreams_error_arrives_with_its_status_body_and_guidance(
    data, way, stream, status
):
    async with RawServer(refuses(status, BODY, *LINES)) as up, running(up.url, data) as live:
        response = await ask(live, way, stream)
        assert (response.status_code, response.json()) == (status, BODY)
        assert {k: response.headers.get(k) for k in GUIDANCE} == GUIDANCE


@row(82)
@each_way
@each_mode
async def test_guidance_arrives_on_success_too(data, way, stream):
    async def fine(seen, wire):
        body = json.loads(seen.body)
        if way == "relay":
            await wire.json({"ok": 1}, 200, *LINES)
        elif body.get("stream"):
            await wire.start_stream(*LINES)
            await wire.event(
                {
                    "id": "1",
                    "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
                }
            )
            await wire.event(b"[DONE]")
            await wire.end()
        else:
            await wire.json(
                {
                    "id": "1",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "a"},
                            "finish_reason": "stop",
                        }
                    ],
                },
                200,
                *LINES,
            )

    async with RawServer(fine) as up, running(up.url, data) as live:
        response = await ask(live, way, stream)
        assert response.status_code == 200
        assert {k: response.headers.get(k) for k in GUIDANCE} == GUIDANCE


@row(78)
async def test_our_own_errors_have_one_shape(data):
    async with (
        Model("ok") as up,
        running(
            up.url,
            data,
            {
                "models": {"known": {"targets": [{"provider": "openai"}]}},
                "server.max_body_mib": 1,
                # There a local server's user needs no key.
                "server.single_user": False,
            },
        ) as live,
    ):
        own_error(await live.http.post(f"{live.url}/chat/completions", content=b"{"), 400)
        own_error(
            await live.http.post(f"{live.url}/chat/completions", json={"model": "known"}), 400
        )
        own_error(await live.chat("hi", model="nope"), 404, "model_not_found")
        own_error(await live.http.get(f"{live.root}/nothing"), 404)
        own_error(await live.http.get(f"{live.root}/memory/v1/nothing"), 404)
        own_error(await live.http.get(f"{live.url}/chat/completions"), 405)
        own_error(
            await live.http.post(f"{live.url}/chat/completions", content=b"x" * 2_000_000), 413
        )
        own_error(
            await live.http.post(
                f"{live.url}/chat/completions", content=b"x", headers={"content-encoding": "br"}
            ),
            415,
        )
        own_error(await live.chat("hi", {"x-memory": "perhaps"}), 400)
        own_error(await live.chat("hi", {"authorization": ""}), 401, "invalid_api_key")
        assert not up.requests


async def reset(seen, wire):
    wire.reset()


async def closes(seen, wire):
    wire.writer.close()


async def no_http(seen, wire):
    await wire.raw(b"\x00\x01 what\r\n\r\n")


async def silent(seen, wire):
    await asyncio.sleep(30)


@row(79)
@each_way
@each_mode
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (reset, 502, None),
        (closes, 502, None),
        (no_http, 502, None),
        (silent, 504, "first_token_timeout"),
    ],
    ids=["reset", "closes", "no http", "silent"],
)
async def test_a_broken_upstream_is_502_and_a_silent_one_504(
    data, way, stream, fault, status, code
):
    limits = {}
    if fault is silent:
        limits, code = ({"first_token": 0.3}, code) if stream else ({"total": 0.4}, "total_timeout")
    config = {**provider(timeouts=limits), "routing.retries": 0}
    async with RawServer(fault) as up, running(up.url, data, config) as live:
        own_error(await ask(live, way, stream), status, code)


@row(79)
@each_way
async def test_an_upstream_that_is_not_there_is_502(data, way):
    async with running("http://127.0.0.1:9/v1", data, {"routing.retries": 0}) as live:
        error = own_error(await ask(live, way), 502, "upstream_unreachable")
        assert "127.0.0.1" not in json.dumps(error)


@row(79)
async def test_what_a_key_may_not_do_is_403(data):
    config = {
        "keys": [
            {
                "name": "phone",
                "key": "k",
                "tenant": "t",
                "trusted": False,
                "users": ["ada"],
                "models": ["m"],
            }
        ]
    }
    async with Model("ok") as up, running(up.url, data, config, "k") as live:
        own_error(await live.chat("hi", user="bob"), 403)
        own_error(await live.chat("hi", user="ada", model="other"), 403)
        own_error(await live.memory("GET", "/users/bob/blocks"), 403)
        assert not up.requests


@row(81)
@each_mode
async def test_an_answer_that_fails_after_memory_was_written_can_be_asked_for_again(data, stream):
    remember = calls(call("core_memory_append", {"label": "human", "content": "Likes tea"}))
    async with (
        Model(remember, (500, BODY), "fine") as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        first = await live.chat("I like tea", stream=stream, user="ada")
        assert BODY in ([first.json()] if not stream else events(first.text))
        again = await live.chat(
            "I like tea", {"x-stainless-retry-count": "1"}, stream=stream, user="ada"
        )
        assert "fine" in again.text
        up.script = ["ok"]
        await live.chat("?", user="ada")
        assert json.dumps(up.bodies[-1]).count("Likes tea") == 1


@row(84)
@each_way
@each_mode
async def test_an_overflow_that_nothing_helps_is_the_upstreams_own(data, way, stream):
    body = {
        "error": {
            "message": "This model's maximum context length is 8 tokens.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    async with RawServer(refuses(400, body)) as up, running(up.url, data) as live:
        response = await ask(live, way, stream)
        assert (response.status_code, response.json()) == (400, body)


@row(85)
@each_way
@each_mode
async def test_an_upstreams_401_is_the_clients_own_only_where_the_key_was(data, way, stream):
    body = {
        "error": {
            "message": f"Incorrect API key provided: {PROVIDER_KEY}",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }
    async with RawServer(refuses(401, body)) as up:
        async with running(up.url, data) as live:
            response = await ask(live, way, stream)
            assert (response.status_code, response.json()) == (401, body)
        async with running(up.url, data / "2", managed(), GATEWAY_KEY) as live:
            error = own_error(await ask(live, way, stream), 502)
            assert error["type"] == "upstream_auth_error"
            assert PROVIDER_KEY not in json.dumps(error)


@row(86)
@each_way
@each_mode
async def test_no_error_tells_a_key_an_address_or_our_insides(data, way, stream):
    told = {"error": {"message": f"no access with {PROVIDER_KEY}", "code": PROVIDER_KEY}}

    async def page(seen, wire):
        await wire.answer(
            500,
            f"<html><body>denied {PROVIDER_KEY}</body></html>".encode(),
            content_type="text/html",
        )

    async def in_band(seen, wire):
        await wire.start_stream()
        await wire.event(
            {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
        )
        await wire.event(told)
        await wire.end()

    async def first(seen, wire):
        await wire.start_stream()
        await wire.event(told)
        await wire.end()

    for i, fault in enumerate(
        (
            refuses(403, told),
            refuses(500, told),
            page,
            reset,
            no_http,
            *([in_band, first] if stream else []),
        )
    ):
        async with (
            RawServer(fault) as up,
            running(
                up.url, data / str(i), {**managed(), "routing.retries": 1}, GATEWAY_KEY
            ) as live,
        ):
            response = await ask(live, way, stream)
            for secret in (
                PROVIDER_KEY,
                GATEWAY_KEY,
                "127.0.0.1",
                f":{up.port}",
                "Traceback",
                'File "',
            ):
                assert secret not in response.text, (fault, secret)
                assert secret not in str(response.headers.raw), (fault, secret)


@row(87)
@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer wrong",
        "Basic dTpw",
        "wrong",
        "Bearer " + "x" * 5000,
        "Bearer \xff\xfe",
    ],
)
async def test_a_key_that_is_missing_malformed_or_unknown_is_401(data, authorization):
    async with Model("ok") as up, running(up.url, data, managed(), "") as live:
        headers = {"authorization": authorization.encode("latin-1")} if authorization else {}
        for way in WAYS:
            own_error(await ask(live, way, headers=headers), 401, "invalid_api_key")
        own_error(
            await live.http.get(f"{live.url}/models", headers=headers), 401, "invalid_api_key"
        )
        own_error(await live.memory("GET", "/users", headers=headers), 401, "invalid_api_key")
        assert not up.requests


@row(87)
async def test_a_store_that_is_down_is_503_where_memory_is_what_was_asked_for(data):
    async with Model("ok") as up, running(up.url, data, managed(), GATEWAY_KEY) as live:
        await live.chat("hi", user="ada")
        live.gateway.memory._closed_until = float("inf")
        live.gateway.memory.db._connections.read = broken
        response = await live.memory("GET", "/users/ada/blocks")
        own_error(response, 503)
        assert int(response.headers["retry-after"]) >= 1
        assert (await live.chat("hi", user="ada")).headers["x-memory-status"] == "degraded"


async def broken(work):
    raise sqlite3.OperationalError("disk I/O error")


@row(77)
@each_mode
async def test_a_refusal_in_a_later_round_keeps_its_words(data, stream):
    remember = calls(
        call("core_memory_append", {"label": "human", "content": "x"}), content="Let me see."
    )
    async with (
        Model(remember, (429, BODY, *LINES)) as up,
        running(up.url, data, {"routing.retries": 0}) as live,
    ):
        response = await live.chat("hi", stream=stream)
        # The text was shown already.
        if stream:
            assert events(response.text)[-1] == BODY
        else:
            assert (response.status_code, response.json()) == (429, BODY)
            assert response.headers["retry-after"] == "7"
