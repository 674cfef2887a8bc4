"""A repeated request goes on where the earlier attempt stood, and no further than that attempt
would have.
"""

from __future__ import annotations

import pytest

from tests.conftest import events, running
from tests.models import Model, call, calls

REMEMBER = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_ours")
LOOK = call("look", {"at": "shop"}, "call_theirs")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
RETRIES = [
    ({"idempotency-key": "k"}, {"idempotency-key": "k"}),
    ({"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}),
]


async def rows(live, query):
    return [
        tuple(r)
        for r in await live.gateway.memory.db.read(lambda c: list(c.exec_driver_sql(query)))
    ]


def shown(answer, stream):
    """The text, the calls' names and the finish of an answer."""
    if not stream:
        choice = answer.json()["choices"][0]
        names = [c["function"]["name"] for c in choice["message"].get("tool_calls") or []]
        return choice["message"]["content"] or "", names, choice["finish_reason"]
    parts = [c for e in events(answer.text) if e != "[DONE]" for c in e["choices"]]
    names = [
        c["function"]["name"]
        for p in parts
        for c in p["delta"].get("tool_calls") or []
        if c["function"].get("name")
    ]
    finish = [p["finish_reason"] for p in parts if p.get("finish_reason")]
    return "".join(p["delta"].get("content") or "" for p in parts), names, *finish


@pytest.mark.parametrize(("first", "again"), RETRIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reply", "more"),
    [
        (calls(REMEMBER, LOOK), {"tools": TOOLS}),
        (calls(REMEMBER, content='{"a": 1}'), {"response_format": {"type": "json_object"}}),
    ],
)
async def test_a_round_that_ended_the_turn_ends_it_again(data, reply, more, stream, first, again):
    async with Model(reply, "never asked for") as up, running(up.url, data) as live:
        answered = await live.chat("I like tea", first, user="ada", stream=stream, **more)
        repeated = await live.chat("I like tea", again, user="ada", stream=stream, **more)
        assert (repeated.status_code, repeated.headers["x-memory-status"]) == (200, "ok")
        assert shown(repeated, stream) == shown(answered, stream)
        assert len(up.requests) == 1
        messages = await rows(live, "SELECT role FROM messages ORDER BY id")
        assert messages == [("user",), ("assistant",)]
        blocks = await rows(live, "SELECT value FROM blocks WHERE label = 'human'")
        assert blocks == [("Likes tea",)]


@pytest.mark.parametrize("stream", [False, True])
async def test_results_of_a_repeated_round_go_on_from_its_calls(data, stream):
    """What was hidden in a round that was shown again is spliced back before its results."""
    async with Model(calls(REMEMBER, LOOK), "done") as up, running(up.url, data) as live:
        key = {"idempotency-key": "k"}
        for _ in range(2):
            await live.chat("I like tea", key, user="ada", stream=stream, tools=TOOLS)
        answer = {"role": "assistant", "content": None, "tool_calls": [LOOK]}
        result = {"role": "tool", "tool_call_id": "call_theirs", "content": "a shop"}
        await live.chat(
            [{"role": "user", "content": "I like tea"}, answer, result],
            user="ada",
            stream=stream,
            tools=TOOLS,
        )
        sent = up.bodies[-1]["messages"]
        called = [c["id"] for m in sent for c in m.get("tool_calls") or []]
        assert (
            called
            == [m["tool_call_id"] for m in sent if m["role"] == "tool"]
            == ["call_ours", "call_theirs"]
        )
