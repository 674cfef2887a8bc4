"""Requests of any shape and replies of odd ones: never a 5xx of ours, never a lost answer."""

from __future__ import annotations

import json

import pytest

from tests.conftest import events, running, said
from tests.models import Model, call, calls

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}
REMEMBER = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_0")
ASKED = call("get_weather", {"city": "x"}, "call_1")
ODD_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": {"a": 1}, "function": {"name": {"a": 1}, "arguments": {"a": 1}}}],
}
USER = {"role": "user", "content": "x"}
WHOLE = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}


def answering(body):
    return lambda seen, wire: wire.json(body)


@pytest.mark.parametrize(
    "members",
    [
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        [["x"]],
                        5,
                        None,
                        {"type": {"a": 1}, "text": "y"},
                        {"type": "image_url", "image_url": 5},
                    ],
                }
            ]
        },
        {"messages": [USER, ODD_CALL, {"role": "tool", "tool_call_id": [1], "content": "z"}]},
        {
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [{"id": [1], "function": "f"}]},
                {"role": "tool", "tool_call_id": {"a": 1}},
            ]
        },
        {"tools": [{"type": "function", "function": "x"}, {"type": "custom", "custom": 5}, 5]},
        {"stream_options": 5},
        {"stream_options": [1]},
        {"stream_options": "x"},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_members_of_any_shape_reach_the_upstream(data, members, stream):
    plain = {**WHOLE, "choices": [{"index": 0, **calls(REMEMBER)}]}
    last = {
        **WHOLE,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        ],
    }
    async with Model(answering(plain), answering(last)) as up, running(up.url, data) as live:
        response = (
            await live.chat([USER], user="ada", stream=stream, **members)
            if "messages" not in members
            else await live.chat(members["messages"], user="ada", stream=stream)
        )
        assert (response.status_code, response.headers["x-memory-status"]) == (200, "ok")
        assert len(up.bodies) == 2
        assert all(up.bodies[0].get(k) == v for k, v in members.items() if k == "stream_options")


@pytest.mark.parametrize("mode", ["full", "off"])
async def test_a_model_name_cannot_forge_a_header(data, mode):
    async with Model("ok") as up, running(up.url, data) as live:
        sent = json.dumps({"model": "m\r\nx-evil: 1", "messages": [USER]}).encode()
        response = await live.http.post(
            f"{live.url}/chat/completions", content=sent, headers={"x-memory": mode}
        )
        assert response.status_code == 200
        assert "x-evil" not in response.headers


async def test_a_retry_count_of_any_length(data):
    async with Model("ok") as up, running(up.url, data) as live:
        assert (await live.chat("hi", {"x-stainless-retry-count": "1" * 5000})).status_code == 200


async def test_an_agent_name_is_never_cut(data):
    async with Model("ok") as up, running(up.url, data) as live:
        assert (await live.chat("hi", {"x-memory-agent": "a" * 257})).status_code == 400


async def test_a_whole_reply_without_usage_to_a_stream(data):
    body = {
        **WHOLE,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "finish_reason": "stop",
            }
        ],
    }
    async with Model(answering(body)) as up, running(up.url, data) as live:
        _, found = await live.stream("hi", user="ada")
        assert (said(found), found[-1]) == ("hello", "[DONE]")


async def test_a_whole_reply_without_choices(data):
    async with Model(answering({**WHOLE, "choices": []})) as up, running(up.url, data) as live:
        response = await live.chat("hi", user="ada")
        assert (response.status_code, response.json()["choices"]) == (200, [])
        assert (
            events((await live.chat("hi", user="ada", stream=True)).text)[-1]["error"]["code"]
            == "stream_incomplete"
        )


async def test_a_plain_mixed_reply_has_content(data):
    async with Model(calls(REMEMBER, ASKED)) as up, running(up.url, data) as live:
        message = (await live.chat("hi", user="ada", tools=[WEATHER])).json()["choices"][0][
            "message"
        ]
        assert (message["role"], message["content"], len(message["tool_calls"])) == (
            "assistant",
            None,
            1,
        )


async def test_a_result_alone_finds_its_call_in_kept_history(data):
    async with Model(calls(ASKED), "sunny") as up, running(up.url, data) as live:
        named = {"x-memory-conversation": "c1"}
        await live.chat("weather?", named, user="ada", tools=[WEATHER])
        await live.chat(
            [{"role": "tool", "tool_call_id": "call_1", "content": "sun"}],
            named,
            user="ada",
            tools=[WEATHER],
        )
        sent = up.bodies[-1]["messages"][1:]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool"]
        assert sent[1]["tool_calls"][0]["id"] == "call_1"


async def test_rounds_before_a_mixed_last_one_are_spliced_back(data):
    script = calls(REMEMBER), calls(ASKED, {**REMEMBER, "id": "r2"}), "done"
    async with Model(*script) as up, running(up.url, data, {"memory.max_rounds": 1}) as live:
        message = (await live.chat("hi", user="ada", tools=[WEATHER])).json()["choices"][0][
            "message"
        ]
        await live.chat(
            [
                {"role": "user", "content": "hi"},
                message,
                {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            ],
            user="ada",
            tools=[WEATHER],
        )
        sent = up.bodies[-1]["messages"][2:]
        assert [m["role"] for m in sent] == ["assistant", "tool", "assistant", "tool"]
        assert [c["id"] for m in sent for c in m.get("tool_calls", ())] == ["call_0", "call_1"]
