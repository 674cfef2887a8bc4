"""Where memory's own reading of an answer fails, the request goes through without memory."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.sockets import RawServer

USER = {"role": "user", "content": "Hi"}
APIS = {
    "chat": ("/chat/completions", {"model": "m", "messages": [USER]}),
    "responses": ("/responses", {"model": "m", "input": [USER], "store": False}),
    "messages": ("/messages", {"model": "m", "messages": [USER], "max_tokens": 9}),
}


def chat_chunk(index):
    delta = {"role": "assistant", "content": "Hi"}
    return {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": "stop"}]}


def call_chunk(index):
    call = {"index": index, "id": "x", "function": {"name": "f", "arguments": "{}"}}
    return {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


STREAMS = {
    "chat": [
        [chat_chunk(-1), "[DONE]"],
        [chat_chunk(5000), "[DONE]"],
        [call_chunk(5000), {"id": "c", "choices": [{"index": 0, "finish_reason": "stop"}]}],
        [["no", "object"], chat_chunk(0), "[DONE]"],
        [{"id": "c", "choices": 3}, chat_chunk(0), "[DONE]"],
        [{"id": "c", "choices": [3]}, chat_chunk(0), "[DONE]"],
    ],
    "responses": [
        [["no", "object"], {"type": "response.completed", "response": {"id": "r", "output": []}}],
        [17, {"type": "response.completed", "response": {"id": "r", "output": []}}],
    ],
    "messages": [
        [["no", "object"], {"type": "message_stop"}],
        ["text", {"type": "message_stop"}],
    ],
}
WHOLE = {
    "chat": [
        {"id": "c", "choices": [{"index": 5000, "message": {"content": "Hi"}}]},
        {"id": "c", "choices": [{"index": -1, "message": {"content": "Hi"}}]},
        {"id": "c", "choices": [{"index": 0, "message": {"role": 3, "content": "Hi"}}]},
        {"id": "c", "choices": [{"index": 0, "message": {"content": "Hi", "tool_calls": 3}}]},
    ],
    "responses": [{"id": "r", "output": 3}],
    "messages": [{"id": "m", "content": 3}, {"id": "m", "content": [3]}],
}


def server(events, whole):
    async def answers(seen, wire):
        if not seen.json.get("stream"):
            await wire.json(whole)
            return
        await wire.start_stream()
        for event in events:
            data = event if event == "[DONE]" else json.dumps(event)
            await wire.part(b"data: " + data.encode() + b"\n\n")
        await wire.end()

    return RawServer(answers)


async def post(live, api, mode, **more):
    path, body = APIS[api]
    headers = {"x-memory": mode, "x-memory-user": "ada"}
    return await live.http.post(f"{live.url}{path}", json={**body, **more}, headers=headers)


@pytest.mark.parametrize(
    ("api", "events"), [(api, events) for api, streams in STREAMS.items() for events in streams]
)
async def test_a_stream_that_memory_cannot_read_is_passed_on(api, events, data):
    async with server(events, {}) as up, running(up.url, data) as live:
        plain = await post(live, api, "off", stream=True)
        http = await post(live, api, "full", stream=True)
        assert (http.status_code, http.text) == (plain.status_code, plain.text)
        assert http.headers["x-memory-status"] == "degraded"
        assert "could not read" in http.headers["x-memory-reason"]
        # Without our additions.
        assert up.requests[-1].json == {**APIS[api][1], "stream": True}


@pytest.mark.parametrize(
    ("api", "whole"), [(api, whole) for api, answers in WHOLE.items() for whole in answers]
)
async def test_a_whole_answer_that_memory_cannot_read_is_passed_on(api, whole, data):
    async with server([], whole) as up, running(up.url, data) as live:
        http = await post(live, api, "full")
        assert (http.status_code, http.json()) == (200, whole)
        assert http.headers["x-memory-status"] in ("degraded", "ok")
        if api == "chat":
            assert http.headers["x-memory-status"] == "degraded"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
async def test_anything_that_makes_our_reader_raise_is_passed_on(api, stream, data, monkeypatch):
    whole = {
        "chat": {"id": "c", "choices": [{"index": 0, "message": {"content": "Hi"}}]},
        "responses": {"id": "r", "object": "response", "output": []},
        "messages": {"id": "m", "type": "message", "role": "assistant", "content": []},
    }[api]
    async with server(STREAMS[api][0], whole) as up, running(up.url, data) as live:
        plain = await post(live, api, "off", stream=stream)

        def fails(*args, **options):
            raise KeyError("a defect")

        reader = "stream_round" if stream else "read_whole"
        monkeypatch.setattr(f"gateway.chat.turn.turn.{reader}", fails)
        http = await post(live, api, "full", stream=stream)
        assert (http.status_code, http.text) == (plain.status_code, plain.text)
        assert http.headers["x-memory-status"] == "degraded"


async def test_what_fails_after_something_was_shown_ends_as_ever(data):
    first = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    async with server([first, [3]], {}) as up, running(up.url, data) as live:
        http = await post(live, "chat", "full", stream=True)
        assert "stream_incomplete" in http.text
        assert len(up.requests) == 1


async def test_a_server_that_answers_another_way_is_no_failing_one(data):
    async with server(STREAMS["chat"][0], {}) as up, running(up.url, data) as live:
        for _ in range(6):
            http = await post(live, "chat", "full", stream=True)
            assert http.headers["x-memory-status"] == "degraded"
        assert len(up.requests) <= 24


async def test_an_operator_who_needs_memory_gets_the_error(data):
    config = {"memory.on_error": "fail"}
    async with server(STREAMS["chat"][0], {}) as up, running(up.url, data, config) as live:
        http = await post(live, "chat", "full", stream=True)
        assert http.status_code == 502
