"""I.

However many rounds a turn takes, and whatever the client asked for: one answer, the same streamed
and plain.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conftest import running
from tests.e2e.wire.reading import HEAD, WEATHER, asked, both, case, check_valid
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls, text

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
FIND = call("conversation_search", {"query": "tea"}, "call_find")
OSLO = call("get_weather", {"city": "Oslo"}, "call_w")
SCRIPTS = {
    "text": ["Hello there."],
    "a length": [text("Hello the", "length")],
    "a filter": [text("Hel", "content_filter")],
    "nothing": [text("")],
    "one round": [calls(TEA), "Noted."],
    "three rounds": [calls(TEA, content="One."), calls(FIND, content="Two."), "Three."],
    "two at once": [calls(TEA, FIND), "Noted."],
    "the client's": [calls(OSLO)],
    "the client's after ours": [calls(TEA), calls(OSLO, content="Looking.")],
    "mixed": [calls(TEA, OSLO, content="Both.")],
    "cut": [calls(TEA, finish="length"), "Plain."],
    "cut after text": [calls(TEA, content="Let me", finish="length")],
    "the end of a round cut": [calls(TEA), text("Note", "length")],
    "stop": [calls(TEA, finish="stop"), "Noted."],
    "a habit of other systems": [
        calls(call("memory_insert", {"label": "human", "content": "x"}, "call_h")),
        "Fine.",
    ],
}


def bill(n):
    return {
        "prompt_tokens": 100 * n,
        "completion_tokens": 10,
        "total_tokens": 100 * n + 10,
        "prompt_tokens_details": {"cached_tokens": 50 * n, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": n},
        "x_cost": 0.5 * n,
    }


def metered(rounds):
    """A behaviour a round, in both modes: answers `rounds[i]` with an identity and a bill of its
    own. `quirk`: where a stream tells its usage.
    """

    def one(n, choice, quirk):
        async def behave(seen, wire):
            head = {**HEAD, "id": f"up-{n}", "created": n, "model": f"m-{n}"}
            message = choice["message"]
            if not seen.json.get("stream"):
                await wire.json(
                    {
                        **head,
                        "object": "chat.completion",
                        "choices": [{"index": 0, **choice}],
                        "usage": bill(n),
                    }
                )
                return
            await wire.start_stream()
            every = {"usage": bill(n)} if quirk == "every" else {}
            await wire.event(
                {
                    **head,
                    **every,
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"role": "assistant", "content": message["content"]},
                            "finish_reason": None,
                        }
                    ],
                }
            )
            found = [{"index": i, **c} for i, c in enumerate(message.get("tool_calls") or [])]
            for c in found:
                await wire.event(
                    {
                        **head,
                        **every,
                        "choices": [
                            {
                                "index": 0,
                                "delta": {"role": "assistant", "tool_calls": [c]},
                                "finish_reason": None,
                            }
                        ],
                    }
                )
            last = {"usage": bill(n)} if quirk in ("every", "finish") else {}
            await wire.event(
                {
                    **head,
                    **last,
                    "choices": [
                        {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
                    ],
                }
            )
            if quirk == "after":
                await wire.event({**head, "choices": [], "usage": bill(n)})
            await wire.event(b"[DONE]")
            await wire.end()

        return behave

    return lambda quirk: [one(i + 1, c, quirk) for i, c in enumerate(rounds)]


@row(130)
async def test_stream_and_plain_give_the_same_answer(data):
    async with Model("") as up, running(up.url, data) as live:
        for what, script in SCRIPTS.items():
            found = []
            for stream in (False, True):
                with case(up, what, *script) as user:
                    up.n = 0
                    _, answer = await asked(
                        live, stream, "hi", tools=[WEATHER], user=f"{user}-{stream}"
                    )
                    # A stream does not tell the two apart.
                    answer["choices"][0]["content"] = answer["choices"][0]["content"] or None
                    found.append(
                        answer
                        | {
                            "rounds": [
                                [{**m, "content": m["content"] or None} for m in b["messages"][2:]]
                                for b in up.bodies
                            ]
                        }
                    )
            assert found[0] == found[1], what


@row(129)
@pytest.mark.parametrize("quirk", ["after", "finish", "every"])
async def test_many_rounds_have_one_identity_one_role_one_finish_and_one_bill(data, quirk):
    rounds = metered([calls(TEA, content="One."), calls(FIND, content=""), text("Three.")])(quirk)
    async with Model("") as up, running(up.url, data) as live:
        total = {
            "prompt_tokens": 600,
            "completion_tokens": 30,
            "total_tokens": 630,
            "prompt_tokens_details": {"cached_tokens": 300, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 6},
            "x_cost": 3.0,
        }
        for stream in (False, True):
            with case(up, stream, *rounds) as user:
                response, answer = await asked(live, stream, "hi", user=user)
                assert (answer["id"], answer["model"], answer["usage"]) == ("up-1", "m-1", total)
                assert answer["choices"] == [
                    {"index": 0, "content": "One.\n\nThree.", "calls": [], "finish_reason": "stop"}
                ]
                assert "up-2" not in response.text
        with case(up, "not asked for", *rounds) as user:
            response = await live.chat("hi", stream=True, user=user)
            assert "usage" not in response.text
            # Metered all the same.
            assert all(b["stream_options"] == {"include_usage": True} for b in up.bodies)


@row(144)
@both
async def test_hidden_rounds_are_billed_and_told_apart(data, stream):
    async with (
        Model(*metered([calls(TEA), calls(FIND), text("Done.")])("after")) as up,
        running(up.url, data) as live,
    ):
        response, answer = await asked(live, stream, "hi", user="ada")
        assert answer["usage"]["prompt_tokens"] == 600
        if not stream:
            assert response.headers["x-memory-rounds"] == "3"
        token = {"authorization": f"Bearer {live.gateway.keys._token}"}
        record = (
            await live.memory(
                "GET", f"/explain/{response.headers['x-memory-explain']}", headers=token
            )
        ).json()
        assert [r["prompt_tokens"] for r in record["tokens"]["rounds"]] == [100, 200, 300]
        assert [t["name"] for t in record["tools"]] == ["core_memory_append", "conversation_search"]
    async with (
        Model(*metered([calls(TEA), text("Done.")])("after")) as up,
        running(up.url, data, {"memory.usage": "last"}) as live,
    ):
        _, answer = await asked(live, stream, "hi", user="bob")
        assert answer["usage"] == bill(2)


@row(131)
@both
async def test_a_model_that_never_stops_calling_is_stopped_with_a_normal_answer(data, stream):
    async def slow(seen, wire):
        await asyncio.sleep(0.4)
        await up._streamed(seen, wire, [calls(TEA)]) if seen.json.get(
            "stream"
        ) else await up._plain(seen, wire, [calls(TEA)])

    loops = {
        "ours for ever": ([calls(TEA)], 4),
        "ours with text": ([calls(TEA, content="Again.")], 4),
        "different ones": ([calls(TEA), calls(FIND), calls(TEA, FIND)], 4),
        "unknown labels": (
            [calls(call("core_memory_append", {"label": "nope", "content": "x"}))],
            4,
        ),
        "no time left": ([slow], 3),
    }
    async with (
        Model("") as up,
        running(up.url, data, {"memory.max_rounds": 3, "memory.turn_seconds": 0.6}) as live,
    ):
        for what, (script, most) in loops.items():
            with case(up, what, *script) as user:
                response, answer = await asked(live, stream, "hi", user=user)
                assert answer["choices"][0]["finish_reason"] == "stop"
                assert answer["choices"][0]["calls"] == []
                assert "core_memory" not in response.text
                assert 2 <= len(up.bodies) <= most
                assert "tools" not in up.bodies[-1]
                check_valid(up.bodies[-1]["messages"])
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            with case(up, choice, calls(TEA), calls(TEA), calls(TEA), calls(OSLO)) as user:
                _, answer = await asked(
                    live, stream, "hi", tools=[WEATHER], tool_choice=choice, user=user
                )
                assert up.bodies[-1]["tools"] == [WEATHER]
                assert [c["id"] for c in answer["choices"][0]["calls"]] == ["call_w"]


ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": "get_weather"}}],
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "a",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}},
            "required": ["ok"],
            "additionalProperties": False,
        },
    },
}


@row(137)
@both
async def test_what_the_client_asked_of_tools_and_format_holds_in_every_round(data, stream):
    asks = [
        {"tools": [WEATHER], "tool_choice": "none"},
        {"tools": [WEATHER], "tool_choice": "required"},
        {
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        },
        {"tools": [WEATHER], "tool_choice": ALLOWED},
        {"tools": [WEATHER], "tool_choice": "auto", "parallel_tool_calls": False},
        {"response_format": SCHEMA},
        {"max_tokens": 7},
        {"max_completion_tokens": 9},
        {"tools": [WEATHER], "tool_choice": None},
        {"stop": ["x"], "temperature": 0, "seed": 9007199254740993},
    ]
    async with Model("") as up, running(up.url, data) as live:
        for i, ask in enumerate(asks):
            with case(up, i, calls(TEA), calls(FIND), '{"ok": true}') as user:
                await asked(live, stream, "hi", user=user, **ask)
                assert len(up.bodies) == 3
                for body in up.bodies:
                    assert {k: body[k] for k in ask if k != "tools"} == {
                        k: v for k, v in ask.items() if k != "tools"
                    }
                    assert set(body) - set(ask) <= {
                        "model",
                        "messages",
                        "stream",
                        "stream_options",
                        "user",
                        "tools",
                    }
                    assert body["tools"][: len(ask.get("tools", []))] == ask.get("tools", [])


@row(137)
@both
async def test_a_strict_json_answer_still_validates(data, stream):
    scripts = {
        "after a round": [calls(TEA), '{"ok": true}'],
        "text beside the call": [calls(TEA, content='{"ok": true}'), '{"ok": false}'],
        "several rounds": [calls(TEA), calls(FIND), '{"ok": true}'],
        "white space first": [calls(TEA, content=""), '{"ok": true}'],
    }
    async with Model("") as up, running(up.url, data) as live:
        for what, script in scripts.items():
            for kind in (SCHEMA, {"type": "json_object"}):
                with case(up, f"{what} {kind['type']}", *script) as user:
                    _, answer = await asked(live, stream, "hi", user=user, response_format=kind)
                    assert json.loads(answer["choices"][0]["content"]) == {"ok": True}
                    assert answer["choices"][0]["finish_reason"] == "stop"


@row(138)
@both
async def test_several_choices_keep_every_one_and_get_memory_without_tools(data, stream):
    async with Model(calls(TEA), "Noted.") as up, running(up.url, data) as live:
        await asked(live, stream, "I like tea", user="ada")
        with case(up, "n=3", [text("a b"), calls(OSLO), text("c", "length")]):
            _, answer = await asked(live, stream, "hi", user="ada", n=3, tools=[WEATHER])
            assert [
                (
                    c["index"],
                    c["content"] or None,
                    [x["id"] for x in c["calls"]],
                    c["finish_reason"],
                )
                for c in answer["choices"]
            ] == [
                (0, "a b", [], "stop"),
                (1, None, ["call_w"], "tool_calls"),
                (2, "c", [], "length"),
            ]
            assert up.bodies[0]["tools"] == [WEATHER]
            assert "Likes tea" in up.bodies[0]["messages"][0]["content"]
        with case(up, "a call nobody offered", [text("a"), calls(TEA)]):
            _, answer = await asked(live, stream, "hi again", user="ada", n=2)
            assert len(answer["choices"]) == 2
            assert answer["choices"][0]["content"] == "a"
