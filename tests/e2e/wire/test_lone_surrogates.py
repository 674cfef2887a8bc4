"""Halves of surrogate pairs, which JavaScript clients make of a cut emoji, pass unchanged."""

from __future__ import annotations

import json
import random
import threading

import pytest

from gateway.apis.chat.chat_format import ChatFormat
from gateway.wire.json_weight import LIGHT_BYTES
from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.e2e.messages import client as claude
from tests.e2e.responses import asking as codex
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel, say, sse

HALVES = ("\ud83d", "\ude00", "\ud800", "\udfff", "a\ud83db", "\ude00\ud83d", "é\ud83d", "\\ud83d")
MODES = pytest.mark.parametrize("mode", ["full", "off", "write", "read"])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


def junk(rng, depth=2):
    """A value with halves anywhere in it, in names too."""
    kind = rng.choice(["text", "list", "object"]) if depth else "text"
    if kind == "list":
        return [junk(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == "object":
        return {half(rng): junk(rng, depth - 1) for _ in range(rng.randrange(3))}
    return half(rng)


def half(rng):
    return "".join(rng.choices([*HALVES, "x ", "😀", "\n"], k=rng.randrange(1, 4)))


def joined(value):
    """As JSON has it: halves that meet are one character."""
    return json.loads(json.dumps(value))


def spelt(value):
    """As ASCII, which test runners can pass on where they tell of a failure."""
    return json.dumps(joined(value))


def spoken(message):
    """A message without what memory adds to it."""
    return {k: v for k, v in message.items() if k != "cache_control"}


async def post(live, path, body, mode):
    headers = {"content-type": "application/json", "x-memory": mode, "x-memory-user": "ada"}
    sent = json.dumps(body)
    http = await live.http.post(f"{live.url}{path}", content=sent, headers=headers)
    assert http.status_code == 200, http.text
    return http


@MODES
@pytest.mark.parametrize("seed", range(4))
async def test_a_chat_request_goes_up_as_it_came(mode, seed, data):
    rng = random.Random(seed)
    async with Model("Fine.") as up, running(up.url, data) as live:
        messages = [{"role": "system", "content": f"Be brief {half(rng)}"}]
        tool = {"type": "function", "function": {"name": "look", "description": half(rng)}}
        for _ in range(4):
            content = half(rng)
            if rng.random() < 0.4:
                content = [{"type": "text", "text": half(rng)}, {"type": "text", "text": "x"}]
            messages.append({"role": "user", "content": content})
            body = {"model": "m", "messages": messages, "tools": [tool], "stop": [half(rng)]}
            body |= {"metadata": {"a": half(rng)}, "user": "ada", "odd": junk(rng)}
            await post(live, "/chat/completions", body, mode)
            got = up.bodies[-1]
            for name in ("stop", "metadata", "odd"):
                assert spelt(got[name]) == spelt(body[name]), name
            assert spelt(tool) in map(spelt, got["tools"])
            said = [spoken(m) for m in got["messages"] if m["role"] != "system"]
            expected = [m for m in messages if m["role"] != "system"]
            assert spelt([m["content"] for m in said]) == spelt([m["content"] for m in expected])
            system = [m["content"] for m in got["messages"] if m["role"] == "system"]
            assert spelt(system[0]).startswith(spelt(messages[0]["content"])[:-1])
            messages.append({"role": "assistant", "content": f"Fine. {half(rng)}"})


@MODES
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("server", [ResponsesModel, ChatOnlyModel], ids=["native", "chat"])
async def test_a_response_request_goes_up_as_it_came(server, mode, seed, data):
    rng = random.Random(seed)
    async with server([say("Fine.")]) as up, running(up.url, data) as live:
        arguments = json.dumps({"a": half(rng)})
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": arguments}
        output = {"type": "function_call_output", "call_id": "c", "output": half(rng)}
        texts = [half(rng), half(rng)]
        items = [codex.user(texts[0]), call, output, codex.user(texts[1])]
        tool = {"type": "function", "name": "look", "description": half(rng), "parameters": {}}
        body = {"model": "m", "input": items, "store": False, "tools": [tool]}
        await post(live, "/responses", body, mode)
        sent = json.dumps(up.bodies[-1])
        for text in (*texts, arguments, output["output"], tool["description"]):
            assert spelt(text)[1:-1] in sent


@MODES
@pytest.mark.parametrize("server", [MessagesModel, ChatOnlyModel], ids=["native", "chat"])
async def test_a_messages_request_goes_up_as_it_came(server, mode, data):
    rng = random.Random(5)
    async with server([say("Fine.")]) as up, running(up.url, data) as live:
        words = [half(rng) for _ in range(4)]
        given = {"city": half(rng)}
        use_block = {"type": "tool_use", "id": "t", "name": "get_weather", "input": given}
        messages = [
            {"role": "user", "content": words[0]},
            {"role": "assistant", "content": [{"type": "text", "text": words[1]}, use_block]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": words[2]},
                    {"type": "text", "text": words[3]},
                ],
            },
        ]
        body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": [claude.WEATHER]}
        await post(live, "/messages", body, mode)
        sent = json.dumps(up.bodies[-1])
        for text in words:
            assert spelt(text)[1:-1] in sent
        if server is MessagesModel:
            assert spelt(use_block) in map(spelt, up.bodies[-1]["messages"][1]["content"])
        else:
            (call,) = next(m["tool_calls"] for m in up.bodies[-1]["messages"] if "tool_calls" in m)
            assert spelt(json.loads(call["function"]["arguments"])) == spelt(given)


ANSWER = "Cut \ud83d here, and \ude00 there."


@MODES
@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("carried", [False, True], ids=["native", "carried"])
async def test_an_answer_has_the_halves_that_came(carried, api, stream, mode, data):
    natives = {"chat": ChatOnlyModel, "responses": ResponsesModel, "messages": MessagesModel}
    server = ChatOnlyModel if carried else natives[api]
    async with server([say(ANSWER)]) as up, running(up.url, data) as live:
        asked = {
            "chat": ("/chat/completions", {"messages": [codex.user("Hi")]}),
            "responses": ("/responses", {"input": [codex.user("Hi")], "store": False}),
            "messages": ("/messages", {"messages": [codex.user("Hi")], "max_tokens": 9}),
        }
        path, body = asked[api]
        if stream and api == "chat":
            body["stream_options"] = {"include_usage": True}
        http = await post(live, path, {"model": "m", **body, "stream": stream}, mode)
        assert "\ufffd" not in http.text
        assert spelt(text_of(api, http, stream)) == spelt(ANSWER)


def text_of(api, http, stream):
    """The text that a client ends up with, piece by piece, as JavaScript reads it."""
    if not stream:
        found = http.json()
        if api == "chat":
            return found["choices"][0]["message"]["content"]
        if api == "responses":
            return "".join(codex.texts(found))
        return "".join(b["text"] for b in found["content"] if b["type"] == "text")
    if api == "chat":
        lines = [e.removeprefix("data: ") for e in http.text.split("\n\n") if e.startswith("data")]
        events = [json.loads(e) for e in lines if e != "[DONE]"]
        choices = [c for e in events for c in e.get("choices") or []]
        return "".join(c["delta"].get("content") or "" for c in choices)
    events = sse(http.text)
    if api == "responses":
        assert spelt("".join(codex.texts(events[-1]["response"]))) == spelt(ANSWER)
        return "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    return "".join(d.get("text") or "" for d in deltas)


@STREAMED
async def test_a_resent_history_with_halves_is_known_and_another_is_not(stream, data):
    """Also where the two halves of one character come in two pieces."""
    async with Model("Cut \ud83d here 😀.", "Fine.") as up, running(up.url, data) as live:
        first = [codex.user("Half \ud83d of it")]
        http = await post(
            live, "/chat/completions", {"model": "m", "messages": first, "stream": stream}, "full"
        )
        name = http.headers["x-memory-conversation"]
        said = text_of("chat", http, stream)
        history = [*first, {"role": "assistant", "content": joined(said)}, codex.user("More")]
        http = await post(live, "/chat/completions", {"model": "m", "messages": history}, "full")
        assert http.headers["x-memory-conversation"] == name
        for other in ("Half \ude00 of it", "Half \ufffd of it"):
            history[0] = codex.user(other)
            http = await post(
                live, "/chat/completions", {"model": "m", "messages": history}, "full"
            )
            assert http.headers["x-memory-conversation"] != name
        assert up.bodies[-1]["messages"][-1]["content"] == "More"


async def test_a_long_request_with_halves_is_written_off_the_loop(data, monkeypatch):
    """None of it can leave as it came, and to write it takes longer than others may wait."""
    threads, encode = [], ChatFormat.encode

    def noting(self, *args, **options):
        threads.append(threading.current_thread())
        return encode(self, *args, **options)

    monkeypatch.setattr(ChatFormat, "encode", noting)
    text = "\ud83d" * LIGHT_BYTES
    async with Model("fine") as up, running(up.url, data) as live:
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        await post(live, "/chat/completions", body, "full")
        arrived = spelt(up.bodies[0]["messages"][-1]["content"]) == spelt(text)
    assert arrived
    assert threading.main_thread() not in threads
