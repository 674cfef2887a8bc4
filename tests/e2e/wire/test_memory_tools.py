"""I.

Memory tools inside a chat: whose call it is, whether it runs, and what the client and the upstream
see of it.
"""

from __future__ import annotations

import itertools
import json

import pytest

from memory.core.tool_definitions import OURS
from tests.conftest import running, said
from tests.e2e.wire.reading import (
    CLOCK,
    WEATHER,
    asked,
    both,
    case,
    check_valid,
    fragments,
    message_of,
    streamed,
)
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls, text

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "call_mem")
RAIN = call("core_memory_append", {"label": "human", "content": "Likes rain"}, "call_mem2")
OSLO = call("get_weather", {"city": "Oslo"}, "call_w")
NOW = call("get_time", {}, "call_t")


def hides(body: str) -> bool:
    return not any(
        word in body
        for word in ("core_memory", "call_mem", "Saved", "Likes tea", "archival", '"role":"tool"')
    )


async def remembered(live, user):
    found = (
        await live.memory(
            "GET",
            f"/users/{user}/blocks/human",
            headers={"authorization": f"Bearer {live.gateway.keys._token}"},
        )
    ).json()
    return found.get("value", "")


@row(124, 125)
@both
async def test_a_call_of_ours_runs_and_is_never_seen_whatever_the_finish_says(data, stream):
    async with Model("") as up, running(up.url, data) as live:
        for finish, content in itertools.product(
            ["tool_calls", "stop", "function_call"], [None, "", "One moment."]
        ):
            with case(
                up, f"{finish}-{content}", calls(TEA, content=content, finish=finish), "Noted."
            ) as user:
                response, answer = await asked(live, stream, "I like it", user=user)
                assert hides(response.text)
                assert answer["choices"][0] == {
                    "index": 0,
                    "content": "One moment.\n\nNoted." if content else "Noted.",
                    "calls": [],
                    "finish_reason": "stop",
                }
                assert await remembered(live, user) == "Likes tea"
                assert len(up.bodies) == 2
                check_valid(up.bodies[1]["messages"])


@row(125)
@both
async def test_a_mixed_reply_is_known_by_its_calls(data, stream):
    async with Model("") as up, running(up.url, data) as live:
        for finish in ("stop", "tool_calls"):
            with case(up, finish, calls(TEA, OSLO, finish=finish)) as user:
                response, answer = await asked(live, stream, "hi", tools=[WEATHER], user=user)
                assert hides(response.text)
                assert [c["id"] for c in answer["choices"][0]["calls"]] == ["call_w"]
                assert answer["choices"][0]["finish_reason"] == "tool_calls"
                assert len(up.bodies) == 1


def delta(name, arguments="", **more):
    return {
        "tool_calls": [
            {
                "index": 0,
                **more,
                "function": {
                    k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None
                },
            }
        ]
    }


WORDS = TEA["function"]["arguments"]
PIECES = {
    "name in pieces": [
        delta("core_mem", id="call_mem", type="function"),
        delta("ory_append", None),
        delta(None, WORDS),
    ],
    "whole": [{"role": "assistant", "content": None, "tool_calls": [{"index": 0, **TEA}]}],
    "no index": [{"role": "assistant", "content": ""}, {"tool_calls": [TEA]}],
    "index 3": [{"tool_calls": [{"index": 3, **TEA}]}],
    "name late": [
        {"role": "assistant"},
        {"tool_calls": [{"index": 0, "id": "call_mem", "type": "function"}]},
        delta("core_memory_append", None),
        delta(None, WORDS),
    ],
    "name and id repeated": [
        delta("core_memory_append", WORDS[:9], id="call_mem"),
        delta("core_memory_append", WORDS[9:], id="call_mem"),
    ],
    "one byte at a time": [
        delta("core_memory_append", id="call_mem"),
        *(delta(None, letter) for letter in WORDS),
    ],
    "text around": [
        {"role": "assistant", "content": ""},
        {"content": "", "tool_calls": [{"index": 0, **TEA}]},
        {"content": None},
    ],
}


@row(124)
async def test_no_delta_of_ours_is_seen_in_whatever_pieces_it_comes(data):
    async with Model("") as up, running(up.url, data) as live:
        for (what, parts), finish in itertools.product(PIECES.items(), ("tool_calls", "stop")):
            with case(up, f"{what}, {finish}", streamed(*parts, finish), "Noted.") as user:
                response, answer = await asked(live, True, "hi", user=user)
                assert hides(response.text)
                assert answer["choices"][0]["content"] == "Noted."
                assert await remembered(live, user) == "Likes tea"
                check_valid(up.bodies[1]["messages"])
                assert up.bodies[1]["messages"][2]["tool_calls"][0]["function"] == TEA["function"]


@row(126)
@both
async def test_arguments_that_are_not_what_the_tool_takes_are_never_executed(data, stream):
    bad = [
        '{"label": "human", "content": "Likes tea"',
        "",
        "null",
        "[]",
        '"Likes tea"',
        "{}",
        "NaN",
        '{"label": "human"}',
        '{"label": "human", "content": null}',
        '{"label": "human", "content": ["Likes tea"]}',
        '{"label": "human", "content": "Likes tea"}}',
        "label=human content=Likes tea",
        "[" * 5000,
        '{"label": "human", "content": "\\ud800"}',
    ]
    async with Model("") as up, running(up.url, data) as live:
        for i, arguments in enumerate(bad):
            with case(
                up, i, calls(call("core_memory_append", arguments, "call_mem")), "Sorry."
            ) as user:
                response, answer = await asked(live, stream, "hi", user=user)
                assert answer["choices"][0]["content"] == "Sorry."
                assert hides(response.text)
                assert up.bodies[1]["messages"][-1]["content"].startswith("Error: ")
                assert await remembered(live, user) == ""


@row(126)
@both
async def test_arguments_as_an_object_are_what_they_say(data, stream):
    odd = {
        **TEA,
        "function": {
            "name": "core_memory_append",
            "arguments": {"label": "human", "content": "Likes tea"},
        },
    }
    script = (
        streamed({"role": "assistant", "tool_calls": [{"index": 0, **odd}]}, "tool_calls")
        if stream
        else calls(odd)
    )
    async with Model(script, "Noted.") as up, running(up.url, data) as live:
        response, answer = await asked(live, stream, "hi", user="ada")
        assert (answer["choices"][0]["content"], hides(response.text)) == ("Noted.", True)
        assert await remembered(live, "ada") == "Likes tea"


@row(126)
@both
async def test_a_call_that_was_cut_off_is_never_executed(data, stream):
    replies = {
        "alone": calls(TEA, finish="length"),
        "beside the client's": calls(TEA, OSLO, finish="length"),
        "after text": calls(TEA, content="Let me", finish="length"),
        "filtered": calls(TEA, finish="content_filter"),
        "after a round": calls(TEA, finish="length"),
    }
    async with Model("") as up, running(up.url, data) as live:
        for what, reply in replies.items():
            first = [calls(RAIN)] if what == "after a round" else []
            with case(up, what, *first, reply, "Plain.") as user:
                response, answer = await asked(live, stream, "hi", tools=[WEATHER], user=user)
                assert hides(response.text)
                assert await remembered(live, user) == ("Likes rain" if first else "")
                alone = not reply["message"]["content"] and len(reply["message"]["tool_calls"]) == 1
                assert answer["choices"][0]["finish_reason"] == (
                    "stop" if alone else reply["finish_reason"]
                )
                assert len(up.bodies) == (2 if alone else 1) + len(first)
                for body in up.bodies:
                    check_valid(body["messages"])


ORDERS = [
    o
    for n in (2, 3, 4)
    for o in itertools.permutations([TEA, OSLO, RAIN, NOW], n)
    if TEA in o and (OSLO in o or NOW in o)
]


@row(124, 127)
@pytest.mark.parametrize("how", ["plain", "streamed", "interleaved"])
async def test_a_mixed_batch_in_any_order_comes_back_to_the_upstream_whole(data, how):
    async with Model("") as up, running(up.url, data) as live:
        for order in ORDERS[::5]:
            script = (
                streamed({"role": "assistant", "content": None}, *fragments(*order), "tool_calls")
                if how == "interleaved"
                else calls(*order)
            )
            with case(up, "-".join(c["id"] for c in order), script, "Done.") as user:
                history = [{"role": "user", "content": "hi"}]
                response, answer = await asked(
                    live, how != "plain", history, tools=[WEATHER, CLOCK], user=user
                )
                assert hides(response.text)
                theirs = [c for c in order if c in (OSLO, NOW)]
                assert answer["choices"][0]["calls"] == [
                    {"id": c["id"], **c["function"]} for c in theirs
                ]
                results = [
                    {"role": "tool", "tool_call_id": c["id"], "content": "result"}
                    for c in reversed(theirs)
                ]
                _, last = await asked(
                    live,
                    how != "plain",
                    [*history, message_of(answer), *results],
                    tools=[WEATHER, CLOCK],
                    user=user,
                )
                assert last["choices"][0]["content"] == "Done."
                sent = up.bodies[1]["messages"]
                check_valid(sent)
                assert sent[2]["tool_calls"] == list(order)
                assert [m["tool_call_id"] for m in sent[3:]] == [
                    *(c["id"] for c in order if c not in theirs),
                    *(c["id"] for c in reversed(theirs)),
                ]
                assert await remembered(live, user) == "\n".join(
                    {"call_mem": "Likes tea", "call_mem2": "Likes rain"}[c["id"]]
                    for c in order
                    if c not in theirs
                )


@row(127)
@both
async def test_ids_that_are_empty_or_repeated_never_make_an_invalid_sequence(data, stream):
    async with Model("") as up, running(up.url, data) as live:
        for one, two in (
            ("", ""),
            ("call_0", "call_0"),
            ("call_w", ""),
            ("call_0", "call_w"),
            ("call_w", "call_w"),
            ("call_0", "call_1"),
        ):
            script = (
                calls({**TEA, "id": one}),
                calls({**RAIN, "id": two}, OSLO, content="Looking."),
                "Done.",
            )
            with case(up, f"{one}-{two}", *script) as user:
                history = [{"role": "user", "content": "hi"}]
                _, answer = await asked(live, stream, history, tools=[WEATHER], user=user)
                assert [c["id"] for c in answer["choices"][0]["calls"]] == ["call_w"]
                await asked(
                    live,
                    stream,
                    [
                        *history,
                        message_of(answer),
                        {"role": "tool", "tool_call_id": "call_w", "content": "-5"},
                    ],
                    tools=[WEATHER],
                    user=user,
                )
                for body in up.bodies:
                    check_valid(body["messages"])
                every = [
                    c["id"] for m in up.bodies[2]["messages"] for c in m.get("tool_calls") or []
                ]
                assert len(every) == len(set(every)) == 3
                assert await remembered(live, user) == "Likes tea\nLikes rain"


@row(127)
@both
async def test_the_same_exchange_is_spliced_only_into_its_own_conversation(data, stream):
    """Weak servers give every call the same id: an id alone never selects a hidden exchange."""
    mine = {**OSLO, "id": "call_0"}
    async with (
        Model(calls({**TEA, "id": "call_1"}, mine), calls(mine), "Done.") as up,
        running(up.url, data) as live,
    ):
        for said in ("first chat", "second chat"):
            await asked(live, stream, said, tools=[WEATHER], user="ada")
        for said, roles in (("first chat", ["tool", "tool"]), ("second chat", ["tool"])):
            history = [
                {"role": "user", "content": said},
                {"role": "assistant", "content": None, "tool_calls": [mine]},
                {"role": "tool", "tool_call_id": "call_0", "content": "-5"},
            ]
            await asked(live, stream, history, tools=[WEATHER], user="ada")
            assert [m["role"] for m in up.bodies[-1]["messages"]][3:] == roles


@row(128)
@both
async def test_a_clients_tool_of_our_name_is_the_clients(data, stream):
    async with Model("") as up, running(up.url, data) as live:
        for name in ("core_memory_append", "conversation_search", "send_message", "memory_insert"):
            theirs = {
                "type": "function",
                "function": {
                    "name": name,
                    "description": "mine",
                    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
                },
            }
            with case(up, name, calls(call(name, {"a": "b"}, "call_c"))) as user:
                _, answer = await asked(live, stream, "hi", tools=[theirs], user=user)
                assert answer["choices"][0]["calls"] == [
                    {"id": "call_c", "name": name, "arguments": '{"a": "b"}'}
                ]
                offered = [t["function"]["name"] for t in up.bodies[0]["tools"]]
                assert (up.bodies[0]["tools"][0], offered.count(name), len(up.bodies)) == (
                    theirs,
                    1,
                    1,
                )
                assert await remembered(live, user) == ""
        with case(up, "every name of ours", calls(TEA)) as user:
            theirs = [
                {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}}
                for n in sorted(OURS)
            ]
            _, answer = await asked(live, stream, "hi", tools=theirs, user=user)
            assert up.bodies[0]["tools"] == theirs
            assert [c["name"] for c in answer["choices"][0]["calls"]] == ["core_memory_append"]


@row(136)
@both
async def test_text_before_a_memory_call_is_shown_once_in_order(data, stream):
    async with Model("") as up, running(up.url, data) as live:
        for before, after, whole in (
            ("Saving.", "Saved it.", "Saving.\n\nSaved it."),
            ("Saving.\n", "Done.", "Saving.\nDone."),
            ("Saving.", " Done.", "Saving. Done."),
            ("", "Done.", "Done."),
            ("Saving.", "", "Saving."),
        ):
            with case(
                up, f"{before!r}, {after!r}", calls(TEA, content=before), text(after)
            ) as user:
                _, answer = await asked(live, stream, "hi", user=user)
                assert answer["choices"][0]["content"] == whole
                # The model sees what it said, once.
                assert up.bodies[1]["messages"][2]["content"] == before
                await asked(
                    live,
                    stream,
                    [
                        {"role": "user", "content": "hi"},
                        message_of(answer),
                        {"role": "user", "content": "more"},
                    ],
                    user=user,
                )
                assert json.dumps(up.bodies[2]["messages"]).count("Saving") == (1 if before else 0)
        parts = [
            {"role": "assistant", "content": "A "},
            {"tool_calls": [{"index": 0, **TEA}]},
            {"content": "B"},
            "tool_calls",
        ]
        with case(up, "text after the call", streamed(*parts), "C") as user:
            _, found = await live.stream("hi", user=user)
            assert said(found) == "A B\n\nC"
            assert up.bodies[1]["messages"][2]["content"] == "A B"
