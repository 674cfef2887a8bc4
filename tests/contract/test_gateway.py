"""Memory through every kind of provider, in the whole gateway; Anthropic's server refuses what the
real one would.
"""

from __future__ import annotations

import contextlib
import itertools
import json

import openai
import pytest

from tests.conftest import SENTINEL_KEY, events, running
from tests.contract.kinds import ANTHROPIC, KINDS
from tests.contract.messages_server import error, events_of, written
from tests.e2e.wire.reading import WEATHER, both, message_of, plain, strict
from tests.models import call, calls

TEA = call("core_memory_append", {"label": "human", "content": "Likes tea"}, "toolu_mem")
OSLO = call("get_weather", {"city": "Oslo"}, "toolu_w")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ROUTE = {
    "models": {
        "m": {"targets": [{"provider": "p", "model": "claude-haiku-4-5"}]},
        "*": {"targets": [{"provider": "p"}]},
    }
}
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)


@contextlib.asynccontextmanager
async def through(kind, data, *script, config=None, **members):
    """A gateway in front of a scripted server of this kind; nothing that it sends may be
    refused.
    """
    async with (
        kind.server(*script) as up,
        running(
            kind.address(up), data, {**kind.config(**members), **ROUTE, **(config or {})}
        ) as live,
    ):
        yield up, live
        assert getattr(up, "refusals", []) == []


async def asked(live, stream, messages, **body):
    """The response, and the answer as a strict client reads it, but for Azure's first chunk, which
    has no name.
    """
    response = await live.chat(
        messages,
        stream=stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
        **body,
    )
    assert response.status_code == 200, response.text
    return response, strict(
        [e for e in events(response.text) if "prompt_filter_results" not in e]
    ) if stream else plain(response.json())


@kinds
@both
async def test_a_memory_call_is_run_and_never_seen(data, kind, stream):
    async with through(kind, data, calls(TEA, content="One moment."), "Noted.") as (up, live):
        response, answer = await asked(
            live, stream, [{"role": "user", "content": "I like tea"}], user="ada"
        )
        choice = answer["choices"][0]
        assert (choice["content"], choice["calls"], choice["finish_reason"]) == (
            "One moment.\n\nNoted.",
            [],
            "stop",
        )
        assert answer["usage"]["total_tokens"] == 220
        assert response.headers["x-memory-status"] == "ok"
        assert response.headers["x-request-id"] == ("up-1" if stream else "up-2")
        assert "toolu_mem" not in response.text
        assert json.dumps(up.bodies[1]).count("toolu_mem") == 2


@kinds
async def test_a_second_session_knows_what_the_first_was_told(data, kind):
    async with through(kind, data, calls(TEA), "Noted.", "You like tea.") as (up, live):
        await live.chat("I like tea", user="ada")
        answer = await live.chat("What do I like?", user="ada")
        assert answer.json()["choices"][0]["message"]["content"] == "You like tea."
        assert answer.json()["model"] == "m"
        told = up.bodies[-1].get("system") or up.bodies[-1]["messages"][0]
        assert "Likes tea" in json.dumps(told)


@kinds
@both
async def test_calls_of_ours_and_of_the_clients_in_one_answer(data, kind, stream):
    async with through(kind, data, calls(TEA, OSLO, content="Both."), "It is cold.") as (up, live):
        history = [{"role": "user", "content": "I like tea. Weather?"}]
        _, answer = await asked(live, stream, history, tools=[WEATHER], user="ada")
        assert [c["name"] for c in answer["choices"][0]["calls"]] == ["get_weather"]
        history += [
            message_of(answer),
            {"role": "tool", "tool_call_id": "toolu_w", "content": "-5"},
        ]
        _, answer = await asked(live, stream, history, tools=[WEATHER], user="ada")
        assert answer["choices"][0]["content"] == "It is cold."
        if kind is ANTHROPIC:
            sent = up.bodies[-1]["messages"]
            assert [m["role"] for m in sent] == ["user", "assistant", "user"]
            assert [b["name"] for b in sent[1]["content"] if b["type"] == "tool_use"] == [
                "core_memory_append",
                "get_weather",
            ]
            assert [b["tool_use_id"] for b in sent[2]["content"]] == ["toolu_mem", "toolu_w"]


async def test_the_core_text_is_marked_and_stays_the_same_from_turn_to_turn(data):
    async with through(ANTHROPIC, data, "A.", calls(TEA), "B.", "C.") as (up, live):
        history = [{"role": "system", "content": "Be brief."}]
        for question in ("one", "two", "three"):
            history.append({"role": "user", "content": question})
            _, answer = await asked(live, False, history, user="ada")
            history.append(message_of(answer))
        first, *later = up.bodies
        assert first["system"][-1]["text"].startswith("Be brief.\n\n")
        assert "<memory_blocks" in first["system"][-1]["text"]
        assert first["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert [b["system"] for b in later] == [first["system"]] * 3
        assert [b["tools"] for b in later] == [first["tools"]] * 3
        turns = [first, later[0], later[2]]
        for before, after in itertools.pairwise(turns):
            assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_an_image_reaches_the_model(data):
    async with through(ANTHROPIC, data, "A dot.") as (up, live):
        parts = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        await live.chat([{"role": "user", "content": parts}], user="ada")
        assert up.bodies[0]["messages"][0]["content"][1] == {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        }


def thought(n):
    return {"type": "thinking", "thinking": f"Hm {n}.", "signature": f"sig{n}"}


USE = {
    "type": "tool_use",
    "id": "toolu_mem",
    "name": "core_memory_append",
    "input": {"label": "human", "content": "Likes tea"},
}
ASK = {"type": "tool_use", "id": "toolu_w", "name": "get_weather", "input": {"city": "Oslo"}}


NEWEST = {"models": {"m": {"targets": [{"provider": "p", "model": "claude-opus-5-5"}]}}}


@both
async def test_signed_thinking_survives_rounds_of_ours_and_the_clients(data, stream):
    """The server checks that nothing before it has changed."""
    async with through(
        ANTHROPIC,
        data,
        [thought(0), USE],
        [thought(1), thought(2), ASK],
        [{"type": "text", "text": "Cold."}],
        config=NEWEST,
    ) as (up, live):
        told, answer = await tool_loop(live, stream)
        assert (answer, up.dropped) == ("Cold.", 0)
        assert [b["index"] for b in told["thinking_blocks"]] == [0, 1, 2]
        assert told["reasoning_content"] == "Hm 0.Hm 1.Hm 2."
        blocks = [
            {k: b[k] for k in ("type", "thinking", "signature")} for b in told["thinking_blocks"]
        ]
        sent = [m["content"] for m in up.bodies[-1]["messages"] if m["role"] == "assistant"]
        assert sent == [[blocks[0], USE], [*blocks[1:], ASK]]


async def test_memory_that_changes_during_a_loop_costs_the_thinking_and_not_the_answer(data):
    config = {**NEWEST, "memory.placement": "live"}
    async with through(
        ANTHROPIC, data, [thought(0), USE, ASK], [{"type": "text", "text": "Cold."}], config=config
    ) as (up, live):
        _, answer = await tool_loop(live, False)
        assert (answer, up.dropped) == ("Cold.", 1)
        assert "Likes tea" in json.dumps(up.bodies[-1]["system"])


async def tool_loop(live, stream):
    """A question that takes a call of the client's, asked by OpenAI's own SDK: the message with the
    call, and the text that follows.
    """
    client = openai.AsyncOpenAI(base_url=live.url, api_key=SENTINEL_KEY, max_retries=0)
    asking = {
        "model": "m",
        "messages": [{"role": "user", "content": "I like tea. Weather?"}],
        "tools": [WEATHER],
        "user": "ada",
    }
    if stream:
        async with client.chat.completions.stream(**asking) as found:
            message = (await found.get_final_completion()).choices[0].message
    else:
        message = (await client.chat.completions.create(**asking)).choices[0].message
    told = message.model_dump(exclude_none=True)
    told["tool_calls"] = [
        {
            "id": c["id"],
            "type": "function",
            "function": {k: c["function"][k] for k in ("name", "arguments")},
        }
        for c in told["tool_calls"]
    ]
    asking["messages"] += [told, {"role": "tool", "tool_call_id": "toolu_w", "content": "-5"}]
    answer = (await client.chat.completions.create(**asking)).choices[0].message.content
    await client.close()
    return told, answer


async def test_the_last_round_goes_without_our_tools_and_the_thinking_bound_to_them(
    data,
):
    async with through(
        ANTHROPIC, data, [thought(0), USE], "Noted.", config={"memory.max_rounds": 1}
    ) as (up, live):
        answer = await live.chat("I like tea", user="ada")
        assert answer.json()["choices"][0]["message"]["content"] == "Noted."
        assert up.bodies[1]["tool_choice"] == {"type": "none"}
        assert [b["type"] for b in up.bodies[1]["messages"][1]["content"]] == ["tool_use"]


@both
async def test_without_memory_the_answer_is_translated_all_the_same(data, stream):
    async with through(ANTHROPIC, data, "Plain.") as (up, live):
        response = await live.chat("Hello", {"x-memory": "off"}, stream=stream)
        told = (
            fold_text(response.text)
            if stream
            else response.json()["choices"][0]["message"]["content"]
        )
        assert (response.status_code, told) == (200, "Plain.")
        assert "system" not in up.bodies[0]
        assert up.bodies[0]["max_tokens"] == 64000


def fold_text(text):
    return "".join(
        c["delta"].get("content") or "" for e in events(text) if e != "[DONE]" for c in e["choices"]
    )


@both
async def test_a_busy_provider_is_tried_again_and_then_quoted(data, stream):
    busy = (529, error("overloaded_error", "Overloaded"))
    async with through(ANTHROPIC, data, busy, "There.", config={"routing.retries": 1}) as (
        up,
        live,
    ):
        response = await live.chat("Hello", user="ada", stream=stream)
        assert (response.status_code, response.headers["x-mnemogate-attempts"]) == (200, "2")
        up.script = [(*busy, "x-should-retry: false")]
        response = await live.chat("Hello", user="eve", stream=stream)
        assert (response.status_code, response.json()["error"]["type"]) == (529, "overloaded_error")


async def test_an_overflow_that_stays_one_is_told_with_its_code(data):
    async with through(
        ANTHROPIC, data, (400, error("invalid_request_error", ANTHROPIC.overflow))
    ) as (_, live):
        response = await live.chat("Hello", user="ada")
        assert (response.status_code, response.json()["error"]["code"]) == (
            400,
            "context_length_exceeded",
        )


@pytest.mark.parametrize("how", ["an error", "a cut"])
@pytest.mark.parametrize("memory", ["full", "off"])
async def test_what_ends_a_stream_early_is_told_in_it(data, how, memory):
    async def failing(seen, wire):
        await wire.start_stream()
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "Hel"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        for event in events_of(message)[: 4 if how == "an error" else -1]:
            await wire.part(written(event))
        if how == "an error":
            await wire.part(written(error("overloaded_error", "Overloaded")))
        await wire.end()

    async with through(ANTHROPIC, data, failing) as (_, live):
        _, found = await live.stream("Hello", {"x-memory": memory}, user="ada")
        assert fold_text("\n\n".join("data: " + json.dumps(e) for e in found[:-1])) == "Hel"
        assert "[DONE]" not in found
        assert found[-1]["error"]["message" if how == "an error" else "code"] == (
            "Overloaded" if how == "an error" else "stream_incomplete"
        )


async def test_a_key_of_ours_that_is_refused_is_not_the_clients_fault(data):
    managed = {"keys": [{"name": "a", "key": "mg-a", "tenant": "t"}]}
    async with through(
        ANTHROPIC,
        data,
        (401, error("authentication_error", "invalid x-api-key: sk-ant-ours")),
        config=managed,
        api_key="sk-ant-ours",
    ) as (up, live):
        response = await live.chat("Hello", {"authorization": "Bearer mg-a"}, user="ada")
        assert (response.status_code, response.json()["error"]["code"]) == (
            502,
            "upstream_auth_error",
        )
        assert up.requests[0].header("x-api-key") == "sk-ant-ours"


async def test_the_providers_own_api_and_its_models_are_reached_beside_it(data):
    async with through(ANTHROPIC, data, "Raw.") as (_, live):
        body = {
            "model": "claude-haiku-4-5",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        }
        response = await live.http.post(f"{live.url}/messages", json=body)
        assert response.json()["content"] == [{"type": "text", "text": "Raw."}]
        listed = (await live.http.get(f"{live.url}/models")).json()
        assert [m["id"] for m in listed["data"]] == ["m", "claude-raw"]
