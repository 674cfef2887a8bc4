"""Chat completions and Messages with memory, at a server that speaks the Responses API alone."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from gateway.config.settings import ConfigError, parse_settings
from gateway.wire.chat import fold
from tests.conftest import running
from tests.e2e.bridges.test_bridges import said
from tests.e2e.messages import client as claude
from tests.e2e.responses.asking import APPEND, FACT
from tests.responses_only_model import ResponsesOnlyModel
from tests.wire_models import MessagesModel, cut, native, say, sse, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.example/cat.png", "detail": "low"}}


@asynccontextmanager
async def live_at(up, data, wires=("responses",), **more):
    provider = {"base_url": up.url, "wires": list(wires), **more}
    config = {"providers": {"main": provider}, **claude.OWN}
    async with running("", data, config) as live:
        yield live


async def ask(live, messages, *, stream, headers=None, **body):
    """What a client is told, as a completion."""
    body = {"user": "ada", **body}
    if not stream:
        http = await live.chat(messages, headers, **body)
        assert http.status_code == 200, http.text
        return http.json()
    body["stream_options"] = {"include_usage": True}
    http, events = await live.stream(messages, headers, **body)
    assert http.status_code == 200, http.text
    assert events[-1] == "[DONE]"
    return fold(events[:-1])


def message_of(told):
    return told["choices"][0]["message"]


@BOTH
async def test_what_is_told_in_one_session_is_known_in_the_next(data, stream):
    script = [[think(), use(APPEND, FACT)], [think("So."), say("Noted.")], "Tea."]
    async with ResponsesOnlyModel(*script) as up, live_at(up, data) as live:
        told = await ask(live, "I like tea", stream=stream)
        assert message_of(told)["content"] == "Noted."
        assert told["choices"][0]["finish_reason"] == "stop"
        # Of both rounds.
        assert told["usage"]["prompt_tokens"] == 200
        assert APPEND not in json.dumps(told)
        told = await ask(live, "What do I like?", stream=stream)
        assert message_of(told)["content"] == "Tea."
        first, second, third = up.bodies
        assert "Likes tea" in third["instructions"]
        assert [i["type"] for i in second["input"][-2:]] == [
            "function_call",
            "function_call_output",
        ]
        assert second["input"][: len(first["input"])] == first["input"]
        assert up.refused == []


@BOTH
async def test_the_reasoning_of_a_hidden_round_goes_back_before_its_call(data, stream):
    script = [[think(), use(APPEND, FACT), use("weather", {"city": "Oslo"})], "Rain."]
    async with ResponsesOnlyModel(*script) as up, live_at(up, data) as live:
        asked = {"tools": [WEATHER], "reasoning_effort": "medium"}
        told = message_of(await ask(live, "Weather?", stream=stream, **asked))
        (call,) = told["tool_calls"]
        assert call["function"]["name"] == "weather"
        result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
        history = [{"role": "user", "content": "Weather?"}, told, result]
        told = message_of(await ask(live, history, stream=stream, **asked))
        assert told["content"] == "Rain."
        kinds = [i.get("type") for i in up.bodies[1]["input"]]
        assert kinds[-5:] == ["reasoning", *["function_call"] * 2, *["function_call_output"] * 2]
        assert up.bodies[1]["input"][-5]["encrypted_content"] == "secret2"


@BOTH
@pytest.mark.parametrize("mode", ["off", "full"])
async def test_all_that_both_formats_know_is_carried(data, stream, mode):
    custom = {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    call = {
        "id": "fc_9",
        "type": "custom_tool_call",
        "call_id": "call_9",
        "name": "patch",
        "input": "*** x",
    }
    async with ResponsesOnlyModel([native(call)]) as up, live_at(up, data) as live:
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "See"}, IMAGE]},
        ]
        told = await ask(
            live,
            messages,
            stream=stream,
            headers={"x-memory": mode},
            tools=[WEATHER, custom],
            tool_choice="required",
            parallel_tool_calls=False,
            response_format={"type": "json_schema", "json_schema": schema},
            max_tokens=99,
            temperature=0.5,
            verbosity="low",
        )
        (shown,) = message_of(told)["tool_calls"]
        assert shown == {
            "id": "call_9",
            "type": "custom",
            "custom": {"name": "patch", "input": "*** x"},
        }
        assert told["choices"][0]["finish_reason"] == "tool_calls"
        (sent,) = up.bodies
        assert sent["input"][0]["content"] == [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": IMAGE["image_url"]["url"], "detail": "low"},
        ]
        assert [t["name"] for t in sent["tools"]][:2] == ["weather", "patch"]
        assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
        assert sent["text"]["format"] == {"type": "json_schema", **schema}
        assert (sent["text"]["verbosity"], sent["max_output_tokens"]) == ("low", 99)
        assert (sent["temperature"], sent["instructions"][:9]) == (0.5, "Be brief.")


@BOTH
async def test_an_answer_that_was_cut_says_so(data, stream):
    async with ResponsesOnlyModel([say("Half"), cut()]) as up, live_at(up, data) as live:
        told = await ask(live, "Hi", stream=stream)
        assert told["choices"][0]["finish_reason"] == "length"
        assert message_of(told)["content"] == "Half"


@BOTH
async def test_what_cannot_be_carried_is_refused_and_named(data, stream):
    async with ResponsesOnlyModel("Yes.") as up, live_at(up, data) as live:
        http = await live.chat("Hi", stop=["x"], stream=stream)
        assert (http.status_code, http.json()["error"]["param"]) == (400, "stop")
        assert "the Responses API" in http.json()["error"]["message"]
        assert "providers.main.drop" in http.json()["error"]["message"]
        assert up.bodies == []


async def test_what_was_dropped_is_told(data):
    async with ResponsesOnlyModel("Yes.") as up, live_at(up, data, drop=["stop"]) as live:
        for mode in ("off", "full"):
            http = await live.chat("Hi", {"x-memory": mode}, stop=["x"], user="ada")
            assert http.status_code == 200, http.text
            assert http.headers["x-mnemogate-bridge"] == "responses"
            assert http.headers["x-mnemogate-dropped"] == "stop"
        explained = await live.memory("GET", f"/explain/{http.headers['x-memory-explain']}")
        assert "was sent a request of the Responses API; dropped: stop" in explained.text


@BOTH
async def test_a_refusal_of_the_server_is_told_as_it_came(data, stream):
    error = {"error": {"message": "too many", "type": "x", "code": None}}
    async with ResponsesOnlyModel((429, error)) as up, live_at(up, data) as live:
        http = await live.chat("Hi", stream=stream)
        assert (http.status_code, http.json()["error"]["message"]) == (429, "too many")


async def failing(seen, wire):
    await wire.start_stream()
    begun = {"id": "resp_1", "model": "m", "created_at": 1}
    told = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Half"},
        {
            "type": "response.failed",
            "response": {**begun, "error": {"code": "server_error", "message": "out of memory"}},
        },
    ]
    for event in told:
        await wire.event(event)
    await wire.end()


async def silent(seen, wire):
    await wire.start_stream()
    await wire.event({"type": "response.created", "response": {"id": "resp_1"}})
    await wire.end()


async def half(seen, wire):
    await wire.start_stream()
    await wire.event({"type": "response.created", "response": {"id": "resp_1"}})
    await wire.event({"type": "response.output_text.delta", "output_index": 0, "delta": "Half"})
    wire.reset()


@pytest.mark.parametrize(
    ("fault", "text"), [(failing, "out of memory"), (silent, "ended"), (half, "broke off")]
)
async def test_a_fault_in_the_middle_of_a_stream(data, fault, text):
    async with ResponsesOnlyModel(fault) as up, live_at(up, data) as live:
        _, events = await live.stream("Hi")
        assert "error" in events[-1]
        assert text in events[-1]["error"]["message"]


async def test_a_response_that_failed_is_an_error(data):
    def failed(seen, wire):
        error = {"code": "rate_limit_exceeded", "message": "slow down"}
        response = {"id": "resp_1", "status": "failed", "error": error, "output": []}
        return 200, response

    async with ResponsesOnlyModel(failed) as up, live_at(up, data) as live:
        http = await live.chat("Hi")
        assert (http.status_code, http.json()["error"]["message"]) == (429, "slow down")


@BOTH
async def test_messages_reach_it_in_two_steps(data, stream):
    script = [[think(), use(APPEND, FACT)], "Noted.", "Tea."]
    async with ResponsesOnlyModel(*script) as up, live_at(up, data) as live:
        assert await said("messages", live, "I like tea", stream=stream) == "Noted."
        assert await said("messages", live, "What do I like?", stream=stream) == "Tea."
        assert "Likes tea" in up.bodies[-1]["instructions"]
        assert up.refused == []


async def test_what_either_step_lost_is_told(data):
    async with ResponsesOnlyModel("Yes.") as up:
        drop = ["thinking", "stop"]
        async with live_at(up, data, drop=drop) as live:
            asked = {"model": "m", "max_tokens": 9, "stop_sequences": ["x"]}
            asked |= {"thinking": {"type": "adaptive"}, "messages": [claude.user("Hi")]}
            http = await live.http.post(f"{live.url}/messages", json=asked)
            assert http.status_code == 200, http.text
            assert http.headers["x-mnemogate-bridge"] == "responses"
            assert http.headers["x-mnemogate-dropped"] == "thinking, stop"


async def test_a_stream_of_messages_keeps_the_rules(data):
    async with ResponsesOnlyModel([say("Yes."), use("weather")]) as up, live_at(up, data) as live:
        asked = {"model": "m", "max_tokens": 9, "stream": True, "messages": [claude.user("Hi")]}
        http = await live.http.post(f"{live.url}/messages", json=asked)
        events = sse(http.text)
        assert [e["type"] for e in events][-1] == "message_stop"
        assert events[-2]["delta"]["stop_reason"] == "tool_use"


@BOTH
async def test_responses_reach_it_as_they_are(data, stream):
    async with ResponsesOnlyModel("Yes.") as up, live_at(up, data) as live:
        assert await said("responses", live, "Hi", stream=stream) == "Yes."
        http = await live.http.post(f"{live.url}/responses", json={"model": "m", "input": "x"})
        assert "x-mnemogate-bridge" not in http.headers
        assert http.status_code == 200


@pytest.mark.parametrize("mode", ["off", "full"])
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_what_a_server_refuses_is_taken_out_and_told(data, path, mode):
    omit = {"chat": ["stop", "metadata"], "responses": ["metadata"]}
    asked = {"model": "m", "user": "ada", "metadata": {"a": "b"}, "stop": ["x"], "input": "Hi"}
    if path == "chat/completions":
        asked = {**asked, "messages": [{"role": "user", "content": "Hi"}], "input": None}
    else:
        del asked["stop"]
    async with ResponsesOnlyModel("Yes.") as up, live_at(up, data, omit=omit) as live:
        up.check = lambda body: ()
        http = await live.http.post(f"{live.url}/{path}", json=asked, headers={"x-memory": mode})
        assert http.status_code == 200, http.text
        assert "metadata" not in up.bodies[0]
        lost = http.headers["x-mnemogate-dropped"]
        assert lost == ("metadata" if path == "responses" else "metadata, stop")
        assert ("x-mnemogate-bridge" in http.headers) == (path != "responses")
        if mode == "full":
            explained = await live.memory("GET", f"/explain/{http.headers['x-memory-explain']}")
            assert f"dropped: {lost}" in explained.text


async def test_what_an_anthropic_server_cannot_be_sent_is_told(data):
    async with MessagesModel([say("Yes.")]) as up, live_at(up, data, (), kind="anthropic") as live:
        for mode in ("off", "full"):
            http = await live.chat(
                "Hi", {"x-memory": mode}, seed=5, user="ada", n=1, logprobs=False
            )
            assert http.headers["x-mnemogate-bridge"] == "messages"
            assert http.headers["x-mnemogate-dropped"] == "seed"
        explained = await live.memory("GET", f"/explain/{http.headers['x-memory-explain']}")
        assert "was sent a request of the Messages API; dropped: seed" in explained.text


async def test_a_member_that_every_request_needs_cannot_be_taken_out(data):
    with pytest.raises(ConfigError, match=r"omit\.responses"):
        parse_settings(
            {"providers": {"a": {"base_url": "http://x", "omit": {"responses": ["input"]}}}}
        )
    with pytest.raises(ConfigError, match="kind"):
        parse_settings({"providers": {"a": {"base_url": "http://x", "wires": ["messages"]}}})
