"""I.

What memory does to the bytes the upstream gets: a prefix that stays, nothing twice, nothing at all
when off, never too long.
"""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from tests.conftest import running
from tests.e2e.wire.reading import WEATHER, asked, both, case, check_valid, message_of
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
OSLO = call("get_weather", {"city": "Oslo"}, "call_w")
MARK = {"type": "ephemeral"}
SYSTEMS = {
    "none": [],
    "a string": [{"role": "system", "content": "Be brief."}],
    "developer": [{"role": "developer", "content": "Be brief."}],
    "marked parts": [
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "Long rules.", "cache_control": MARK},
                {"type": "text", "text": "More."},
            ],
        }
    ],
    "two": [{"role": "system", "content": "One."}, {"role": "system", "content": "Two."}],
}


def head(body: bytes) -> bytes:
    """A request's bytes up to the end of its newest user message."""
    return body[: body.index(b'],"', body.rindex(b'"role":"user"'))]


def marks(value) -> int:
    return json.dumps(value).count('"cache_control"')


async def talk(live, up, system, stream, turns, user):
    """A chat of an app that resends everything.

    Returns the raw bodies of the first round of each turn.
    """
    history, firsts = [*system], []
    for i in range(turns):
        history.append(
            {
                "role": "user",
                "content": [{"type": "text", "text": f"question {i}", "cache_control": MARK}]
                if i == 1
                else f"question {i}",
            }
        )
        begun = len(up.requests)
        _, answer = await asked(live, stream, history, tools=[WEATHER], user=user)
        history.append(message_of(answer))
        if answer["choices"][0]["calls"]:
            history.append({"role": "tool", "tool_call_id": "call_w", "content": "-5"})
            _, answer = await asked(live, stream, history, tools=[WEATHER], user=user)
            history.append(message_of(answer))
        firsts.append(up.requests[begun].body)
    return firsts, history


@row(139)
@both
async def test_with_or_without_changed_memory_a_turn_only_adds_to_the_bytes_of_the_last(
    data, stream
):
    scripts = {
        "unchanged": ["a", "b", "c", "d"],
        "changed at once": [calls(TEA), "a", "b", "c", "d"],
        "changed later": [
            "a",
            calls(TEA),
            "b",
            calls(call("core_memory_append", {"label": "human", "content": "Likes rain"})),
            "c",
            "d",
        ],
        "changed beside the client's call": ["a", calls(TEA, OSLO, content="Both."), "b", "c", "d"],
        "before it": [calls(TEA), calls(OSLO), "b", "c", "d"],
    }
    async with Model("") as up, running(up.url, data) as live:
        for name, system in SYSTEMS.items():
            for what, script in scripts.items():
                if name != "marked parts" and what != "changed later":
                    continue
                with case(up, f"{name}, {what}", *script) as user:
                    bodies, history = await talk(live, up, system, stream, 4, user)
                    for before, after in itertools.pairwise(bodies):
                        assert after.startswith(head(before)), (before, after)
                    for request in up.requests:
                        check_valid(request.json["messages"])
                        assert request.json["tools"] == up.requests[0].json["tools"]
                    last = json.loads(bodies[-1])["messages"]
                    # None added, none lost.
                    assert marks(last) == marks(history[:-1])
                    if system and isinstance(system[0]["content"], list):
                        assert (
                            last[0]["content"][: len(system[0]["content"])] == system[0]["content"]
                        )
                    assert ("Likes tea" in json.dumps(last)) == (what != "unchanged")


@row(139)
async def test_memory_changed_from_outside_alters_only_what_follows_the_clients_own_system_text(
    data,
):
    async with Model("a") as up, running(up.url, data) as live:
        token = {"authorization": f"Bearer {live.gateway.keys._token}"}
        history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        _, answer = await asked(live, False, history, user="ada")
        await live.memory(
            "PUT", "/users/ada/blocks/human", headers=token, json={"value": "Likes tea"}
        )
        await asked(
            live,
            False,
            [*history, message_of(answer), {"role": "user", "content": "more"}],
            user="ada",
        )
        one, two = (b["messages"][0]["content"] for b in up.bodies)
        assert one.startswith("Be brief.\n\n")
        assert two.startswith("Be brief.\n\n")
        assert "Likes tea" in two
        assert up.bodies[0]["tools"] == up.bodies[1]["tools"]


@row(140)
@both
async def test_a_resent_history_adds_nothing_to_what_is_stored(data, stream):
    async def stored(live):
        return await live.gateway.memory.db.read(
            lambda c: [
                tuple(r)
                for r in c.exec_driver_sql("SELECT role, content FROM messages ORDER BY id")
            ]
        )

    async with (
        Model(calls(TEA, OSLO, content="Both."), "b", "c", "d") as up,
        running(up.url, data) as live,
    ):
        _, history = await talk(live, up, SYSTEMS["a string"], stream, 3, "ada")
        found = await stored(live)
        assert [role for role, _ in found] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
        ]
        # And once more, and once more.
        for _ in range(3):
            await asked(
                live,
                stream,
                [*history, {"role": "user", "content": "last"}],
                tools=[WEATHER],
                user="ada",
            )
        after = await stored(live)
        assert after[: len(found)] == found
        assert set(after[len(found) :]) == {("user", "last"), ("assistant", "d")}


RAW = (
    b'{ "model" : "m", "messages":[{"role":"user","content":"h\\u00e9 \\ud83d\\ude00"}],\r\n '
    b'"x":1e-7,"x":2 , "seed":12345678901234567890, "stream":%s}'
)
PLAIN = (
    b'{"id":"1" , '
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"\\u00e9"},'
    b'"finish_reason":"stop"}],"n":1.0}\n'
)
STREAM = (
    b": a comment\r\n\r\nid: 7\nevent: message\n"
    b'data:{"choices":[{"index":0,"delta":{"content":"\xc3\xa9\xe2\x80\xa8"},'
    b'"finish_reason":"stop"}]}\n'
    b"\nretry: 5\n\ndata: [DONE]\n\n"
)


@row(141)
@both
@pytest.mark.parametrize("mode", ["off", "OFF"])
async def test_off_is_the_bytes_of_both_sides(data, stream, mode):
    async def exact(seen, wire):
        if not stream:
            await wire.answer(200, PLAIN)
            return
        await wire.start_stream()
        for i in range(0, len(STREAM), 3):
            await wire.part(STREAM[i : i + 3])
        await wire.end()

    body = RAW % (b"true" if stream else b"false")
    async with Model(exact) as up, running(up.url, data) as live:
        headers = {
            "x-memory": mode,
            "x-memory-user": "ada",
            "x-memory-conversation": "c",
            "x-memory-agent": "a",
            "content-type": "application/json",
        }
        response = await live.http.post(
            f"{live.url}/chat/completions", content=body, headers=headers
        )
        assert up.requests[0].body == body
        assert response.content == (STREAM if stream else PLAIN)
        assert response.headers["x-memory-status"] == "off"
        assert not [
            k
            for k, _ in up.requests[0].headers
            if k.lower().startswith(("x-memory", "x-mnemogate"))
        ]
        await asyncio.wait_for(live.gateway.memory._ready.wait(), 10)
        counts = await live.gateway.memory.db.read(
            lambda c: [
                c.exec_driver_sql(f"SELECT COUNT(*) FROM {t}").scalar()
                for t in ("messages", "nodes", "explains", "scopes")
            ]
        )
        assert counts == [0, 0, 0, 0]


@row(146)
@both
async def test_memory_alone_never_makes_a_request_too_long(data, stream):
    """An upstream whose window just holds the client's own body: what is added to it must fit, or
    is left out.
    """
    refusal = {
        "error": {
            "message": "This model's maximum context length is 10 tokens.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }

    async def window(seen, wire):
        own = {k: v for k, v in seen.json.items() if k not in ("stream", "stream_options")}
        if len(json.dumps(own)) > size:
            await wire.json(refusal, 400)
        elif "tools" in seen.json and seen.json["messages"][-1]["role"] == "user":
            await (up._streamed if seen.json.get("stream") else up._plain)(
                seen,
                wire,
                [calls(call("archival_memory_insert", {"content": "word " * 300}), content=None)],
            )
        else:
            await (up._streamed if seen.json.get("stream") else up._plain)(
                seen,
                wire,
                [{"message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
            )

    turns = {
        "one long message": [{"role": "user", "content": "x" * 6000}],
        "a short one": [{"role": "user", "content": "hi"}],
        "a long system text": [
            {"role": "system", "content": "x" * 6000},
            {"role": "user", "content": "hi"},
        ],
        "a history": [
            {"role": ("user", "assistant")[i % 2], "content": f"{i} " + "y" * 300} for i in range(9)
        ],
    }
    async with Model("") as up, running(up.url, data, {"memory.summary_seconds": 0.2}) as live:
        for what, messages in turns.items():
            # The second holds the first round, but not what its call adds.
            for room in (60, 4600):
                size = (
                    len(json.dumps({"model": "m", "messages": messages, "user": "user-" + what}))
                    + room
                )
                with case(up, f"{what}, {room} to spare", window) as user:
                    response, answer = await asked(live, stream, messages, user=user)
                    assert answer["choices"][0]["content"] == "Fine."
                    assert response.headers["x-memory-status"] in ("ok", "degraded")
                    # A long request says nothing of what the target takes.
                    assert not len(live.gateway.lacks)
        size = 10
        with case(up, "the client's own is too long", window):
            response = await live.chat("hi", stream=stream)
            assert (response.status_code, response.json()["error"]["code"]) == (
                400,
                "context_length_exceeded",
            )


@row(146)
async def test_a_known_window_is_respected_with_memory_in_it_before_anything_is_sent(data):
    config = {"models": {"m": {"targets": [{"provider": "openai"}], "context_window": 4000}}}
    blocks = [{"label": "human", "value": "word " * 780, "limit": 4000}]
    async with (
        Model("Fine.") as up,
        running(up.url, data, {**config, "memory.blocks": blocks}) as live,
    ):
        messages = [
            {"role": ("user", "assistant")[i % 2], "content": f"{i} " + "some words here " * 30}
            for i in range(21)
        ]
        _, answer = await asked(live, False, messages, user="ada", max_tokens=500)
        assert answer["choices"][0]["content"] == "Fine."
        sent = next(r for r in up.bodies if r["messages"][-1]["content"].startswith("20 "))
        assert len(json.dumps(sent["messages"])) / 4 < 4000 - 500
