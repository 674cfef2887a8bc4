"""Several rounds are one message: what is shown, what the next round and the next turn hold."""

from __future__ import annotations

import json
import re

import pytest

from tests.conftest import running
from tests.e2e.messages.client import (
    OWN,
    REMEMBER,
    TEA,
    WEATHER,
    ask,
    ours_of,
    result,
    said,
    text_in,
    user,
)
from tests.wire_models import MessagesModel, native, say, stop, think, use

LOOK = use("core_memory_append", {"label": "human", "content": "Has a cat."})
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
OSLO = use("weather", {"city": "Oslo"})


async def test_the_text_and_the_thinking_of_all_rounds_are_one_message(data, stream):
    script = ([think("First."), say("One moment."), REMEMBER], [think("Then."), say("Noted.")])
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=stream)
        assert answer.kinds == ["thinking", "text", "thinking", "text"]
        assert answer.text == "One moment.Noted."
        assert [b["signature"] for b in answer.content if b["type"] == "thinking"] == [
            "sig1",
            "sig5",
        ]
        assert answer.message["stop_reason"] == "end_turn"
        # Of the first round.
        assert answer.message["id"] == "msg_4"


async def test_streamed_and_plain_turns_give_equal_messages(data):
    script = [[think(), REMEMBER], [say("Wait."), LOOK], [think("Well."), say("Noted."), OSLO]]
    found = []
    for stream in (False, True):
        async with (
            MessagesModel(*script) as up,
            running(up.url, data / str(stream)) as live,
        ):
            answer = await ask(live, "I like tea", stream=stream, tools=[WEATHER])
            answer.message["usage"].pop("iterations")
            found.append((answer.message, [{**b, "stream": None} for b in up.bodies]))
    plain, streamed = found
    assert streamed[0]["content"] == plain[0]["content"]
    assert {k: streamed[0][k] for k in plain[0]} == plain[0]
    assert untagged(streamed[1]) == untagged(plain[1])


def untagged(bodies):
    """The same without the tag of the folder's blocks."""
    return re.sub(r"(tagged |tag=.{1,2})[0-9a-f]+", "", text_in(bodies))


async def test_the_next_round_is_what_the_model_said_and_one_message_of_results(data, stream):
    script = ([think("Hm."), native(REDACTED), say("Wait."), REMEMBER, LOOK], "Noted.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        await ask(live, "I like tea", stream=stream)
        first, second = up.bodies
        assert second["messages"][: len(first["messages"])] == first["messages"]
        reply, results = second["messages"][len(first["messages"]) :]
        assert reply == {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig1"},
                REDACTED,
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "toolu_4", "name": REMEMBER.name, "input": TEA},
                {"type": "tool_use", "id": "toolu_5", "name": LOOK.name, "input": LOOK.arguments},
            ],
        }
        assert results["role"] == "user"
        assert [b["tool_use_id"] for b in results["content"]] == ["toolu_4", "toolu_5"]
        assert {k: v for k, v in second.items() if k != "messages"} == {
            k: v for k, v in first.items() if k != "messages"
        }


async def test_a_mixed_reply_shows_the_clients_calls_and_goes_on_with_all_of_them(data, stream):
    script = ([think("Two things."), OSLO, REMEMBER, OSLO], "Four degrees.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "Weather? I like tea", stream=stream, tools=[WEATHER])
        assert answer.kinds == ["thinking", "tool_use", "tool_use"]
        assert answer.message["stop_reason"] == "tool_use"
        calls = [b for b in answer.content if b["type"] == "tool_use"]
        asked = user("Weather? I like tea")
        # They come in an order of the client's own, with words behind them.
        told = user(result(calls[1], "5"), result(calls[0], "4"), "And?")
        last = await ask(live, [asked, said(answer), told], stream=stream, tools=[WEATHER])
        assert last.text == "Four degrees."
        *_, reply, results = up.bodies[-1]["messages"]
        assert [b["type"] for b in reply["content"]] == ["thinking", *["tool_use"] * 3]
        order = [b["id"] for b in reply["content"][1:]]
        assert [b.get("tool_use_id") for b in results["content"][:3]] == order
        assert [b["content"] for b in results["content"][:3:2]] == ["4", "5"]
        assert results["content"][3]["text"] == "And?"


async def test_results_in_messages_of_their_own_are_one_message_with_ours(data, stream):
    script = ([OSLO, REMEMBER, OSLO], "Four.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "Weather?", stream=stream, tools=[WEATHER])
        told = [user(result(b)) for b in answer.content]
        await ask(live, [user("Weather?"), said(answer), *told], stream=stream, tools=[WEATHER])
        assert [m["role"] for m in up.bodies[-1]["messages"]] == ["user", "assistant", "user"]


async def test_the_clients_own_messages_are_never_joined(data, stream):
    async with MessagesModel([OSLO], "Four.") as up, running(up.url, data) as live:
        answer = await ask(live, "Weather?", stream=stream, tools=[WEATHER])
        sent = [user("Weather?"), said(answer), user(result(answer.content[0])), user("Well?")]
        await ask(live, sent, stream=stream, tools=[WEATHER])
        assert up.bodies[-1]["messages"] == sent


async def test_hidden_rounds_stand_in_the_next_turn_as_they_happened(data, stream):
    script = ([think("A."), REMEMBER], [think("B."), LOOK], [think("C."), say("Noted.")], "Tea.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=stream)
        assert answer.kinds == ["thinking", "thinking", "thinking", "text"]
        await ask(live, [user("I like tea"), said(answer), user("What?")], stream=stream)
        # The last round's, before its answer.
        whole = up.bodies[2]["messages"]
        after = up.bodies[3]["messages"]
        assert after[: len(whole)] == whole
        assert after[len(whole)] == {"role": "assistant", "content": answer.content[2:]}
        assert len(after) == len(whole) + 2


async def test_a_tool_turn_after_hidden_rounds_goes_on_as_it_happened(data, stream):
    script = ([think("A."), REMEMBER], [think("B."), OSLO], "Four.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        body = {"stream": stream, "tools": [WEATHER], "thinking": {"type": "enabled"}}
        answer = await ask(live, "Weather? I like tea", **body)
        assert answer.kinds == ["thinking", "thinking", "tool_use"]
        told = user(result(answer.content[-1]))
        await ask(live, [user("Weather? I like tea"), said(answer), told], **body)
        roles = [m["role"] for m in up.bodies[-1]["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("dropped", ["thinking", "nothing"])
async def test_an_echo_without_thinking_is_recognised(data, stream, dropped):
    script = ([think("A."), REMEMBER], [think("B."), say("Noted.")], "Tea.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=stream)
        echo = [b for b in answer.content if b["type"] != dropped]
        # One text block is also a string.
        content = echo[0]["text"] if dropped == "thinking" else echo
        sent = [user("I like tea"), {"role": "assistant", "content": content}, user("What?")]
        await ask(live, sent, stream=stream)
        assert REMEMBER.name in text_in(up.bodies[-1]["messages"])


@pytest.mark.parametrize(
    "reason", ["max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"]
)
@pytest.mark.parametrize("shown", [True, False])
async def test_a_reply_that_was_cut_ends_the_turn_and_its_calls_are_not_run(
    data, stream, reason, shown
):
    half = use(REMEMBER.name, '{"label": "hum' if stream else {})
    parts = [*([say("I will ")] if shown else []), half, stop(reason)]
    async with MessagesModel([REMEMBER], parts) as up, running(up.url, data, OWN) as live:
        answer = await ask(live, "I like tea", stream=stream)
        assert answer.message["stop_reason"] == reason
        assert answer.kinds == ["text"] * shown
        assert len(up.bodies) == 2
        blocks = await live.memory("GET", "/users/ada/blocks/human")
        assert blocks.json()["value"] == "Likes tea."


async def test_a_call_whose_input_is_no_json_is_told_so_and_goes_back_as_an_object(data):
    broken = use(REMEMBER.name, '{"label": ')
    async with MessagesModel([broken], "Well.") as up, running(up.url, data) as live:
        assert (await ask(live, "I like tea", stream=True)).text == "Well."
        reply, results = up.bodies[1]["messages"][-2:]
        assert reply["content"][0]["input"] == {"INVALID_JSON": '{"label": '}
        assert "JSON" in results["content"][0]["content"]


async def test_a_call_without_arguments_runs(data, stream):
    async with (
        MessagesModel([use("conversation_search")], "Ok.") as up,
        running(up.url, data) as live,
    ):
        assert (await ask(live, "Before?", stream=stream)).text == "Ok."
        assert up.bodies[1]["messages"][-2]["content"][0]["input"] == {}


async def test_a_text_that_stayed_empty_is_not_sent_back(data, stream):
    script = ([say(""), REMEMBER], "Noted.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        answer = await ask(live, "I like tea", stream=stream)
        assert answer.text == "Noted."
        assert [b["type"] for b in up.bodies[1]["messages"][-2]["content"]] == ["tool_use"]


async def test_the_last_round_has_no_tool_of_ours(data, stream):
    config = {"memory.max_rounds": 2}
    script = ([REMEMBER], [LOOK], [say("Enough."), REMEMBER])
    async with MessagesModel(*script) as up, running(up.url, data, config) as live:
        answer = await ask(live, "I like tea", stream=stream, tools=[WEATHER])
        assert (answer.text, answer.message["stop_reason"]) == ("Enough.", "end_turn")
        assert [bool(ours_of(b)) for b in up.bodies] == [True, True, False]
        assert up.bodies[-1]["tools"] == [WEATHER]


async def test_calls_of_the_last_round_have_their_tools_beside_them_but_cannot_be_made(
    data, stream
):
    async with (
        MessagesModel([REMEMBER], "Enough.") as up,
        running(up.url, data, {"memory.max_rounds": 1}) as live,
    ):
        assert (await ask(live, "I like tea", stream=stream)).text == "Enough."
        last = up.bodies[-1]
        assert last["tool_choice"] == {"type": "none"}
        assert last["tools"] == [{"name": REMEMBER.name, "input_schema": {"type": "object"}}]


async def test_the_usage_shown_is_the_last_rounds_and_lists_them_all(data, stream):
    script = ([REMEMBER], [LOOK], "Noted.")
    async with MessagesModel(*script) as up, running(up.url, data, OWN) as live:
        answer = await ask(live, "I like tea", stream=stream)
        usage = answer.message["usage"]
        sizes = [
            len(json.dumps([b.get(k) for k in ("system", "tools", "messages")])) // 4
            for b in up.bodies
        ]
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        assert [usage[n] for n in names] == [sizes[-1], 0, 30]
        assert usage["output_tokens"] == 13
        each = usage["iterations"]
        assert [i["type"] for i in each] == ["message"] * 3
        assert [i["input_tokens"] for i in each] == sizes
        if stream:
            assert answer.events[0]["message"]["usage"]["input_tokens"] == sizes[0]
            closing = answer.events[-2]["usage"]
            assert all(n in closing for n in names)
        booked = (await live.memory("GET", "/usage")).json()["data"][0]
        assert booked["input_tokens"] == sum(sizes) + 3 * 30
        assert booked["output_tokens"] == 11 + 12 + 13


async def test_a_turn_of_one_round_shows_the_upstreams_usage_in_full(data):
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        answer = await ask(live, "Hello", stream=True)
        closing = answer.events[-2]["usage"]
        assert closing["input_tokens"] == answer.events[0]["message"]["usage"]["input_tokens"] > 0
        assert closing["cache_read_input_tokens"] == 30
        assert "iterations" not in closing


async def test_an_alias_names_the_model_and_the_first_rounds_id_the_message(data, stream):
    config = {
        "models": {"claude": {"targets": [{"provider": "openai", "model": "claude-large"}]}},
        "providers": {"openai": {"base_url": "x"}},
    }
    async with MessagesModel([REMEMBER], "Noted.", "Hi.") as up:
        config["providers"]["openai"]["base_url"] = up.url
        async with running("", data, config) as live:
            for ident in ("msg_2", "msg_6"):
                answer = await ask(live, "I like tea", stream=stream, model="claude")
                assert (answer.message["model"], answer.message["id"]) == ("claude", ident)
            assert {b["model"] for b in up.bodies} == {"claude-large"}
