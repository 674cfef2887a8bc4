"""Faults: errors in Anthropic's shape, answers that break off, clients that leave, a store that is
down.
"""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from memory.errors import StoreUnavailable
from memory.stores.sql.engine.database import Database
from tests.conftest import running
from tests.e2e.messages.client import (
    OWN,
    REMEMBER,
    TEA,
    ask,
    events_of,
    ours_of,
    request,
    text,
    text_in,
    user,
)
from tests.e2e.test_crash import spawned
from tests.wire_models import MessagesModel, say, think, use

OVERLOADED = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
    "request_id": "req_up",
}
TOO_LONG = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "prompt is too long: 205000 tokens > 200000 maximum",
    },
}
MANAGED = {"name": "app", "key": "mg-0123456789abcdef0123", "tenant": "t"}
NO_RETRIES = {"routing.retries": 0}


async def post(live, messages="Hello", headers=None, path="/messages", **body):
    sent = request(messages, stream=body.pop("stream", False), **body)
    return await live.http.post(live.url + path, json=sent, headers=headers or {})


def told(response):
    """The error of a response, which has the shape that Anthropic's SDKs read."""
    found = response.json()
    assert set(found) == {"type", "error", "request_id"}
    assert found["type"] == "error"
    assert set(found["error"]) == {"type", "message"}
    assert found["request_id"] == response.headers["x-mnemogate-request-id"]
    return response.status_code, found["error"]["type"]


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize("path", ["/messages", "/messages/count_tokens"])
async def test_our_errors_have_anthropics_shape(data, mode, path):
    key = {"authorization": f"Bearer {MANAGED['key']}", "x-memory": mode}
    config = {"keys": [{**MANAGED, "models": ["m"], "trusted": False}], "server.max_body_mib": 1}
    async with MessagesModel("Hi.") as up, running(up.url, data, config, key="") as live:

        async def refused(**more):
            return told(await post(live, path=path, **{"headers": key, **more}))

        assert await refused(headers={"x-memory": mode}) == (401, "authentication_error")
        assert await refused(headers={**key, "x-memory": "loud"}) == (400, "invalid_request_error")
        assert await refused(model="other") in (
            (403, "permission_error"),
            (404, "not_found_error"),
        )
        other = {**key, "x-memory-user": "eve"}
        assert await refused(headers=other) == (403, "permission_error")
        large = await post(live, "x" * 2_000_000, headers=key, path=path)
        assert told(large) == (413, "request_too_large")
        assert not up.requests


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_limit_of_ours_is_a_rate_limit_error(data, mode):
    key = {**MANAGED, "trusted": True, "limits": {"rpm": 1}}
    headers = {"x-api-key": key["key"], "x-memory": mode}
    async with MessagesModel("Hi.") as up, running(up.url, data, {"keys": [key]}, key="") as live:
        assert (await post(live, headers=headers)).status_code == 200
        response = await post(live, headers=headers)
        assert told(response) == (429, "rate_limit_error")
        assert "retry-after" in response.headers


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_upstream_that_is_not_there_is_an_api_error(data, mode):
    config = NO_RETRIES
    async with running("http://127.0.0.1:9/v1", data, config) as live:
        response = await post(live, headers={"x-memory": mode})
        assert told(response) == (502, "api_error")


REFUSALS = [
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens"}}),
    (401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}}),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "no"}}),
    (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}),
    (400, TOO_LONG),
    (529, OVERLOADED),
]


@pytest.mark.parametrize("mode", ["full", "off"])
@pytest.mark.parametrize(("status", "body"), REFUSALS)
async def test_the_upstreams_errors_reach_the_client_equal(data, stream, mode, status, body):
    answer = (status, body, "retry-after: 7", "x-should-retry: false")
    async with MessagesModel(answer) as up, running(up.url, data, NO_RETRIES) as live:
        response = await post(live, stream=stream, headers={"x-memory": mode})
        assert (response.status_code, response.json()) == (status, body)
        assert response.headers["retry-after"] == "7"


async def test_a_refusal_of_what_we_added_is_answered_without_it(data, stream):
    def picky(seen, wire):
        if ours_of(seen.json) or "system" in seen.json:
            return (400, REFUSALS[0][1])
        return [say("Plain.")]

    async with MessagesModel(picky) as up, running(up.url, data) as live:
        answer = await ask(live, "Hello", stream=stream)
        assert answer.text == "Plain."
        assert answer.response.headers["x-memory-status"] == "degraded"
        assert up.bodies[-1]["messages"] == [user("Hello")]


def broken(parts, after, tail=b""):
    """An answer that breaks off after so many events. tail: what comes in their place."""

    async def behave(seen, wire):
        await wire.start_stream()
        for event in list(MODEL.events(MODEL.reply(parts, seen.json)))[:after]:
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        if tail:
            await wire.part(tail)
        await wire.end()

    return behave


MODEL = MessagesModel()
ERROR_EVENT = b"event: error\ndata: " + json.dumps(OVERLOADED).encode() + b"\n\n"


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_cut_stream_ends_with_one_api_error(data, mode):
    cut = broken([say("One two three four")], 6)
    async with MessagesModel(cut) as up, running(up.url, data, NO_RETRIES) as live:
        response = await post(live, stream=True, headers={"x-memory": mode})
        events = events_of(response.text)
        assert [e["type"] for e in events[-2:]] == ["content_block_delta", "error"]
        assert events[-1]["error"]["type"] == "api_error"
        assert set(events[-1]) == {"type", "error"}


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_an_error_of_the_upstreams_inside_the_stream_passes_as_it_came(data, mode):
    failing = broken([say("One two three four")], 5, ERROR_EVENT)
    async with MessagesModel(failing) as up, running(up.url, data, NO_RETRIES) as live:
        response = await post(live, stream=True, headers={"x-memory": mode})
        events = events_of(response.text)
        assert events[-1] == OVERLOADED
        assert [e["type"] for e in events].count("error") == 1


async def test_an_error_inside_the_stream_never_tells_the_providers_key(data):
    key = "sk-ant-0123456789abcdef"
    fault = json.dumps({**OVERLOADED, "error": {"type": "api_error", "message": f"{key} is bad"}})
    failing = broken([say("One two")], 4, f"event: error\ndata: {fault}\n\n".encode())
    async with MessagesModel(failing) as up:
        provider = {"kind": "anthropic", "base_url": up.url, "api_key": key}
        config = {"providers": {"main": provider}, "keys": [MANAGED], **NO_RETRIES}
        async with running("", data, config, key=MANAGED["key"]) as live:
            response = await post(live, stream=True)
            assert events_of(response.text)[-1]["error"]["type"] == "api_error"
            assert key not in response.text


async def test_a_stream_that_begins_with_an_error_is_a_refusal(data):
    failing = broken([say("One")], 0, ERROR_EVENT)
    async with MessagesModel(failing) as up, running(up.url, data, NO_RETRIES) as live:
        response = await post(live, stream=True)
        assert response.status_code == 529
        assert response.json()["type"] == "error"
        assert response.json()["error"] == OVERLOADED["error"]


async def test_a_fault_of_a_later_round_is_the_last_event(data):
    refusal = (400, REFUSALS[0][1])
    script = ([say("Wait."), REMEMBER], refusal)
    async with MessagesModel(*script) as up, running(up.url, data, NO_RETRIES) as live:
        events = events_of((await post(live, "I like tea", stream=True)).text)
        assert events[-1] == {"type": "error", "error": REFUSALS[0][1]["error"]}
        assert [e["type"] for e in events].count("message_stop") == 0


@pytest.mark.parametrize("second", [False, True])
async def test_the_same_request_after_a_broken_answer_goes_on_from_finished_rounds(data, second):
    script = ([think("Hm."), REMEMBER], broken([say("Noted, of course")], 4), "Noted.")
    config = {**OWN, **NO_RETRIES}
    async with MessagesModel(*script) as up, running(up.url, data, config) as live:
        events = events_of((await post(live, "I like tea", stream=True)).text)
        assert events[-1]["type"] == "error"
        answer = await ask(live, "I like tea", stream=second)
        assert answer.kinds == ["thinking", "text"]
        assert answer.text == "Noted."
        assert len(up.bodies) == 3
        assert up.bodies[2]["messages"] == up.bodies[1]["messages"]
        kept = await messages_of(live)
        assert [(m["role"], m["content"]) for m in kept] == [
            ("user", "I like tea"),
            ("assistant", "Noted."),
        ]
        block = (await live.memory("GET", "/users/ada/blocks/human")).json()
        assert (block["value"], block["version"]) == (TEA["content"], 1)


async def messages_of(live):
    listed = await live.memory("GET", "/users/ada/conversations")
    # Nothing is kept yet of what its key said.
    if listed.status_code == 403:
        return []
    found = listed.json()["data"]
    assert len(found) == 1
    path = f"/users/ada/conversations/{found[0]['id']}/messages"
    return (await live.memory("GET", path)).json()["data"]


async def test_what_a_client_who_leaves_was_shown_is_kept_as_aborted(data):
    async def stalls(seen, wire):
        await wire.start_stream()
        for event in list(MODEL.events(MODEL.reply([say("One two three")], seen.json)))[:5]:
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await seen.gone.wait()

    async with MessagesModel(stalls) as up, running(up.url, data, OWN) as live:
        body = request("Count", stream=True)
        async with live.http.stream("POST", f"{live.url}/messages", json=body) as response:
            seen = b""
            async for part in response.aiter_bytes():
                seen += part
                if b'"wo t' in seen or seen.count(b"text_delta") >= 2:
                    break
        await asyncio.wait_for(up.requests[0].gone.wait(), 20)
        for _ in range(200):
            kept = [m for m in await messages_of(live) if m["role"] == "assistant"]
            if kept:
                break
            await asyncio.sleep(0.05)
        assert [m["aborted"] for m in kept] == [True]
        assert "One two three".startswith(kept[0]["content"])


@pytest.mark.parametrize("session", [None, "0b3e-session"])
async def test_a_store_that_is_down_lets_the_clients_request_through(
    data, stream, session, monkeypatch
):
    async def down(*_, **__):
        raise StoreUnavailable("down")

    headers = {} if session is None else {"x-claude-code-session-id": session}
    async with MessagesModel([think(), say("Hi.")]) as up, running(up.url, data) as live:
        monkeypatch.setattr(Database, "read", down)
        answer = await ask(live, "Hello", stream=stream, headers=headers, system="Be brief.")
        assert answer.text == "Hi."
        assert answer.response.headers["x-memory-status"] == "degraded"
        assert answer.response.headers["x-memory-reason"].startswith("degraded: ")
        body = up.bodies[0]
        assert (body["system"], body["messages"]) == ("Be brief.", [user("Hello")])
        assert "tools" not in body


async def test_a_stream_that_comes_as_one_message_is_shown_as_events(data):
    async def whole(seen, wire):
        cited = {**text("Cited."), "citations": [{"type": "char_location", "cited_text": "x"}]}
        reply = MODEL.reply([think("Hm."), say("Hi."), REMEMBER], seen.json)
        reply["content"].insert(2, cited)
        if up.n > 1:
            reply = MODEL.reply([say("Noted.")], seen.json)
        up.signed |= MODEL.signed
        await wire.json(reply)

    async with MessagesModel(whole) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=True)
        assert answer.kinds == ["thinking", "text", "text", "text"]
        assert answer.text == "Hi.Cited.Noted."
        assert answer.content[2]["citations"][0]["cited_text"] == "x"


async def test_a_whole_message_that_comes_as_a_stream_is_shown_whole(data):
    def streamed(parts):
        return broken(parts, 999)

    script = (streamed([say("One."), REMEMBER]), streamed([say("Noted.")]))
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=False)
        assert answer.text == "One.Noted."
        assert answer.message["stop_reason"] == "end_turn"


async def test_blocks_are_numbered_without_gaps_whatever_the_upstream_does(data):
    async def gaps(seen, wire):
        await wire.start_stream()
        parts = [say("One."), REMEMBER] if up.n == 1 else [say("Two."), say("Three.")]
        for event in MODEL.events(MODEL.reply(parts, seen.json)):
            if "index" in event:
                event = {**event, "index": event["index"] * 2 + 1}
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()

    async with MessagesModel(gaps) as up, running(up.url, data) as live:
        assert (await ask(live, "I like tea", stream=True)).text == "One.Two.Three."


async def test_citations_and_deltas_that_nobody_knows_are_kept_in_the_block(data):
    cite = {"type": "char_location", "cited_text": "x", "start_char_index": 0}
    compaction = {"type": "compaction", "content": None}

    async def odd(seen, wire):
        if up.n > 1:
            return [say("Noted.")]
        reply = MODEL.reply([say("Cited."), REMEMBER], seen.json)
        reply["content"][0]["citations"] = [cite]
        events = list(MODEL.events(reply))
        events[2:2] = [
            {"type": "content_block_start", "index": 7, "content_block": compaction},
            {
                "type": "content_block_delta",
                "index": 7,
                "delta": {"type": "compaction_delta", "content": "So far."},
            },
            {"type": "content_block_stop", "index": 7},
        ]
        await wire.start_stream()
        for event in events:
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()
        return None

    async with MessagesModel(odd) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=True)
        assert answer.content[0] == {"type": "compaction", "content": "So far."}
        assert answer.content[1] == {**text("Cited."), "citations": [cite]}
        sent = up.bodies[1]["messages"][-2]["content"]
        assert sent[0] == answer.content[1]
        assert {"type": "compaction", "content": "So far."} in sent


@pytest.mark.parametrize("whole", [False, True])
async def test_names_and_reasons_of_other_types_break_nothing(data, stream, whole):
    block = {"type": "tool_use", "id": 5, "name": ["core_memory_append"], "input": {}}

    async def odd(seen, wire):
        reply = {**MODEL.reply([say("Hi.")], seen.json), "stop_reason": ["end"]}
        reply["content"] += [{"type": ["text"]}, block]
        if whole:
            await wire.json(reply)
            return
        await wire.start_stream()
        for event in MODEL.events(reply):
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()

    async with MessagesModel(odd) as up, running(up.url, data, NO_RETRIES) as live:
        response = await post(live, stream=stream)
        assert response.status_code == 200
        assert "went wrong" not in response.text


async def test_an_error_of_another_format_inside_the_stream_is_told_as_one(data):
    bare = b'data: {"error": {"type": "api_error", "message": "Out of memory."}}\n\n'
    failing = broken([say("One two three four")], 5, bare)
    async with MessagesModel(failing) as up, running(up.url, data, NO_RETRIES) as live:
        events = events_of((await post(live, stream=True)).text)
        assert events[-1]["error"] == {"type": "api_error", "message": "Out of memory."}
        assert [e["type"] for e in events].count("error") == 1


async def test_a_silent_stream_is_kept_alive_by_pings(data):
    async def slow(seen, wire):
        events = list(MODEL.events(MODEL.reply([say("One two")], seen.json)))
        await wire.start_stream()
        for i, event in enumerate(events):
            await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if i == 3:
                await enough.wait()
        await wire.end()

    enough = asyncio.Event()
    config = {"server.keepalive_seconds": 0.1}
    async with MessagesModel(slow) as up, running(up.url, data, config) as live:
        body, seen = request("Count", stream=True), b""
        async with live.http.stream("POST", f"{live.url}/messages", json=body) as response:
            async for part in response.aiter_bytes():
                seen += part
                if seen.count(b"event: ping") >= 3:
                    enough.set()
        events = events_of(seen.decode())
        assert events[-1]["type"] == "message_stop"
        assert isinstance(response, httpx.Response)
        assert "One" in text_in(events)


async def test_a_gateway_that_was_killed_goes_on_from_finished_rounds(data):
    """As long as the request is the same, be it with a stream or without."""
    asked = asyncio.Event()

    async def hangs(seen, wire):
        asked.set()
        await seen.gone.wait()

    body = request("I like tea", stream=True)
    async with MessagesModel([think("Hm."), REMEMBER], hangs, "Noted.") as up:
        async with spawned(up.url, data) as (child, client):
            asking = asyncio.create_task(client.post("/v1/messages", json=body))
            await asyncio.wait_for(asked.wait(), 20)
            child.kill()
            with pytest.raises(httpx.HTTPError):
                await asking
        async with spawned(up.url, data) as (_, client):
            response = await client.post("/v1/messages", json={**body, "stream": False})
        found = response.json()
        assert [b["type"] for b in found["content"]] == ["thinking", "text"]
        assert len(up.bodies) == 3
        assert up.bodies[2]["messages"] == up.bodies[1]["messages"]


LOOK = use("look", {"at": "it"})


@pytest.mark.parametrize("deltas", [1, 2, 3])
@pytest.mark.parametrize("place", [None, 0, 7], ids=["numbered", "all 0", "all 7"])
async def test_several_message_deltas_and_blocks_of_one_number_lose_nothing(data, deltas, place):
    """Some servers tell the reason first and the usage in a `message_delta` of its own."""

    async def odd(seen, wire):
        parts = [say("One."), REMEMBER] if up.n == 1 else [say("Two."), LOOK]
        await wire.start_stream()
        for event in MODEL.events(MODEL.reply(parts, seen.json)):
            if "index" in event and place is not None:
                event = {**event, "index": place}
            repeated = deltas if event["type"] == "message_delta" else 1
            for number in range(repeated):
                if number:
                    event = {**event, "delta": {"stop_reason": None, "stop_sequence": None}}
                await wire.part(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await wire.end()

    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    async with MessagesModel(odd) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=True, tools=tools)
    assert answer.text == "One.Two."
    calls = [(b["name"], b["input"]) for b in answer.content if b["type"] == "tool_use"]
    assert calls == [("look", {"at": "it"})]
    assert answer.message["stop_reason"] == "tool_use"
    assert up.n == 2
