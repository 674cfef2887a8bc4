"""Responses and Messages with memory, at a server that speaks chat completions alone."""

from __future__ import annotations

import json

import pytest

from tests.chat_only_model import NO_PATH, ChatOnlyModel
from tests.conftest import running
from tests.e2e.messages import client as claude
from tests.e2e.responses import asking as codex
from tests.e2e.responses.asking import APPEND, FACT
from tests.wire_models import MessagesModel, say, sse, stop, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])
EITHER = pytest.mark.parametrize("ask", ["responses", "messages"])
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


async def said(ask, live, words, *, stream, **body):
    """What a client of either API is told, as text; its stream keeps the API's rules."""
    if ask == "responses":
        shown, events = await codex.ask(live, words, stream=stream, store=False, **body)
        if stream:
            codex.check_stream(events)
        assert APPEND not in json.dumps([shown, events])
        return "".join(codex.texts(shown))
    return (await claude.ask(live, words, stream=stream, **body)).text


@BOTH
@EITHER
@pytest.mark.parametrize("kind", NO_PATH)
async def test_what_is_told_in_one_session_is_known_in_the_next(data, ask, stream, kind):
    script = [[think(), use(APPEND, FACT)], [think("So."), say("Noted.")], "Tea."]
    async with ChatOnlyModel(*script, kind=kind) as up:
        async with running(up.url, data) as live:
            assert await said(ask, live, "I like tea", stream=stream) == "Noted."
        # Asked once, and known from then on.
        assert len(up.refused) == 1
        async with running(up.url, data) as live:
            assert await said(ask, live, "What do I like?", stream=stream) == "Tea."
        first, second, third = up.bodies
        assert "Likes tea" in third["messages"][0]["content"]
        assert [m["role"] for m in second["messages"][-2:]] == ["assistant", "tool"]
        assert second["messages"][: len(first["messages"])] == first["messages"]


@BOTH
async def test_a_mixed_turn_of_responses(data, stream):
    script = [[say("Let me see."), use(APPEND, FACT), use("weather", {"city": "Oslo"})], "Rain."]
    async with ChatOnlyModel(*script) as up, running(up.url, data) as live:
        tools = {"tools": [WEATHER], "store": False}
        shown, _ = await codex.ask(live, "Weather?", stream=stream, **tools)
        (call,) = [i for i in shown["output"] if i["type"] == "function_call"]
        assert call["name"] == "weather"
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        items = [codex.user("Weather?"), *shown["output"], result]
        shown, _ = await codex.ask(live, items, stream=stream, **tools)
        assert codex.texts(shown) == ["Rain."]
        *_, asked, ours, theirs = up.bodies[1]["messages"]
        assert [c["function"]["name"] for c in asked["tool_calls"]] == [APPEND, "weather"]
        assert ours["content"].startswith("Saved")
        assert theirs["content"] == "rain"


@BOTH
async def test_a_mixed_turn_of_messages(data, stream):
    script = [[say("Let me see."), use(APPEND, FACT), use("weather", {"city": "Oslo"})], "Rain."]
    async with ChatOnlyModel(*script) as up, running(up.url, data) as live:
        tools = {"tools": [claude.WEATHER]}
        first = await claude.ask(live, "Weather?", stream=stream, **tools)
        assert first.message["stop_reason"] == "tool_use"
        history = [
            claude.user("Weather?"),
            claude.said(first),
            claude.user(claude.result(first.content[-1], "rain")),
        ]
        assert (await claude.ask(live, history, stream=stream, **tools)).text == "Rain."
        *_, asked, ours, theirs = up.bodies[1]["messages"]
        assert [c["function"]["name"] for c in asked["tool_calls"]] == [APPEND, "weather"]
        assert ours["content"].startswith("Saved")
        assert theirs["content"] == "rain"


@BOTH
async def test_a_turn_of_codex(data, stream):
    """The shape of its requests: developer items, custom, hosted tools, encrypted reasoning."""
    patch = {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}
    body = {
        "tools": [WEATHER, patch, {"type": "tool_search"}, {"type": "web_search"}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread",
    }
    lead = [{"type": "message", "role": "developer", "content": text("You are Codex.")}]
    lead += [{"type": "message", "role": "user", "content": text("<env/>")}]
    script = [[think(), use(APPEND, FACT)], [think(), use("apply_patch", {"input": "*** x"})], "Ok"]
    async with ChatOnlyModel(*script) as up, running(up.url, data) as live:
        asked = [*lead, {"type": "message", "role": "user", "content": text("Patch it.")}]
        headers = {"thread-id": "t-1", "user-agent": "codex_exec/0.169.0"}
        shown, events = await codex.ask(live, asked, stream=stream, headers=headers, **body)
        call = shown["output"][-1]
        assert (call["type"], call["input"]) == ("custom_tool_call", "*** x")
        if stream:
            codex.check_stream(events)
        output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
        echo = [{**i, "content": None} if i["type"] == "reasoning" else i for i in shown["output"]]
        again = [*asked, *echo, output]
        shown, _ = await codex.ask(live, again, stream=stream, headers=headers, **body)
        assert codex.texts(shown) == ["Ok"]
        names = [c["function"]["name"] for m in up.bodies[2]["messages"] for c in called(m)]
        assert names == [APPEND, "apply_patch"]


def text(words):
    return [{"type": "input_text", "text": words}]


def called(message):
    return message.get("tool_calls") or ()


@EITHER
async def test_what_was_dropped_is_told(data, ask):
    more = {"include": ["x"]} if ask == "responses" else {"thinking": {"type": "adaptive"}}
    asked = {"model": "m", **more}
    asked |= {"input": "Hi"} if ask == "responses" else {"max_tokens": 9, "messages": [hi()]}
    async with ChatOnlyModel("Yes.") as up, running(up.url, data, claude.OWN) as live:
        url = f"{live.url}/{ask}"
        for mode in ("off", "full"):
            http = await live.http.post(url, json=asked, headers={"x-memory": mode})
            assert http.status_code == 200, http.text
            assert http.headers["x-mnemogate-bridge"] == "chat"
            assert http.headers["x-mnemogate-dropped"] in ("include", "thinking")
        explained = await live.memory("GET", f"/explain/{http.headers['x-memory-explain']}")
        assert "was sent a chat completion; dropped: " in explained.text


def hi():
    return {"role": "user", "content": "Hi"}


@EITHER
async def test_what_cannot_be_carried_is_refused_in_the_clients_shape(data, ask):
    asked = {"model": "m", "input": "Hi", "background": True, "user": "ada"}
    if ask == "messages":
        asked = {"model": "m", "max_tokens": 9, "messages": [hi()], "top_k": 5}
    async with ChatOnlyModel("Yes.") as up, running(up.url, data) as live:
        http = await live.http.post(f"{live.url}/{ask}", json=asked)
        assert http.status_code == 400
        told = http.json()
        if ask == "responses":
            assert told["error"]["param"] == "background"
        else:
            assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
        assert "providers." in told["error"]["message"]
        assert up.bodies == []


@BOTH
@EITHER
async def test_a_refusal_of_the_server_has_the_clients_shape(data, ask, stream):
    error = {"error": {"message": "too many", "type": "x", "code": None}}
    async with ChatOnlyModel((429, error)) as up, running(up.url, data) as live:
        asked = {"model": "m", "input": "Hi", "stream": stream}
        if ask == "messages":
            asked = {"model": "m", "max_tokens": 9, "messages": [hi()], "stream": stream}
        http = await live.http.post(f"{live.url}/{ask}", json=asked)
        assert http.status_code == 429
        assert http.json()["error"]["message"] == "too many"
        if ask == "messages":
            assert http.json()["error"]["type"] == "rate_limit_error"


async def half(seen, wire):
    await wire.start_stream()
    chunk = {"model": "m", "choices": [{"index": 0, "delta": {"content": "Half an an"}}]}
    await wire.event(chunk)
    wire.reset()


async def failing(seen, wire):
    await wire.start_stream()
    await wire.event({"model": "m", "choices": [{"index": 0, "delta": {"content": "Half"}}]})
    await wire.event({"error": {"message": "out of memory", "code": 500}})
    await wire.end()


@pytest.mark.parametrize(("fault", "text"), [(half, "broke off"), (failing, "out of memory")])
@EITHER
async def test_a_fault_in_the_middle_of_a_stream(data, ask, fault, text):
    asked = {"model": "m", "stream": True}
    asked |= {"input": "Hi"} if ask == "responses" else {"max_tokens": 9, "messages": [hi()]}
    async with ChatOnlyModel(fault) as up, running(up.url, data) as live:
        http = await live.http.post(f"{live.url}/{ask}", json=asked)
        last = sse(http.text)[-1]
        assert last["type"] == ("response.failed" if ask == "responses" else "error")
        assert last["error"]["message"]
        if fault is failing:
            assert text in last["error"]["message"]


@BOTH
async def test_a_call_that_was_cut_off_is_not_run(data, stream):
    script = [[use(APPEND, '{"label": "human", "content": "Li'), stop("length")], "Yes."]
    async with ChatOnlyModel(*script) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        shown, _ = await codex.ask(live, "I like tea", stream=stream, store=False)
        assert shown["status"] == "incomplete"
        assert shown["incomplete_details"] == {"reason": "max_output_tokens"}
        assert APPEND not in json.dumps(shown)


@BOTH
@EITHER
async def test_an_anthropic_server_answers_responses(data, ask, stream):
    """Two translations in a row: Responses to chat completions to Messages."""
    script = [[use(APPEND, FACT)], [say("Noted.")], [say("Tea.")]]
    async with MessagesModel(*script) as up:
        config = {"providers": {"main": {"kind": "anthropic", "base_url": up.url}}}
        async with running("", data, config) as live:
            assert await said(ask, live, "I like tea", stream=stream) == "Noted."
            assert await said(ask, live, "What do I like?", stream=stream) == "Tea."
            assert {r.path.partition("?")[0] for r in up.requests} == {"/v1/messages"}
            assert "Likes tea" in str(up.bodies[-1]["system"])


@BOTH
async def test_declared_formats_are_not_asked_for(data, stream):
    async with ChatOnlyModel("Yes.") as up:
        config = {"providers": {"main": {"base_url": up.url, "wires": ["chat"]}}}
        async with running("", data, config) as live:
            assert await said("responses", live, "Hi", stream=stream) == "Yes."
            assert up.refused == []


@EITHER
@pytest.mark.parametrize("kind", NO_PATH)
async def test_tokens_are_estimated_where_the_server_cannot_count(data, ask, kind):
    # 2,000 tokens.
    long = "The quick brown fox jumps over the lazy dog. " * 200
    asked = {"model": "m", "tools": []}
    path = "responses/input_tokens" if ask == "responses" else "messages/count_tokens"
    asked |= {"input": long} if ask == "responses" else {"messages": [{**hi(), "content": long}]}
    async with ChatOnlyModel("Yes.", kind=kind) as up, running(up.url, data, claude.OWN) as live:
        counts = []
        for headers in ({"x-memory": "off"}, {"x-memory-user": "ada"}):
            http = await live.http.post(f"{live.url}/{path}", json=asked, headers=headers)
            assert http.status_code == 200, http.text
            counts.append(http.json()["input_tokens"])
        assert 1900 <= counts[0] <= 2600
        # With what the memory adds.
        assert counts[1] > counts[0] + 200
        assert up.bodies == []
