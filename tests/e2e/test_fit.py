"""Context fit: by size, by the upstream's refusal, with and without tool groups; a summary is made
once and reused.
"""

from __future__ import annotations

import json

import pytest

from memory.context.tokens import TokenCounter
from tests.conftest import running
from tests.e2e.test_turns import check_valid
from tests.models import Model, call, calls

WINDOW = 4000


def user(content):
    return {"role": "user", "content": content}


def long_chat(turns, tools=False):
    out = [{"role": "system", "content": "be brief"}]
    for i in range(turns):
        out.append(user(f"question {i}: " + "some words about nothing " * 12))
        if tools:
            out += [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call("look", {"n": i}, f"call_{i}")],
                },
                {"role": "tool", "tool_call_id": f"call_{i}", "content": "result row " * 150},
            ]
        out.append({"role": "assistant", "content": f"reply {i}: " + "more words about it " * 12})
    return [*out, user("and now?")]


def model(seen, wire):
    if seen.json["messages"][0]["content"].startswith("You compress"):
        return "SUMMARY of what was said"
    return f"answer to {len(seen.json['messages'])}"


def chats(up):
    return [b for b in up.bodies if not b["messages"][0]["content"].startswith("You compress")]


def size(body):
    counter = TokenCounter()
    return sum(counter.message(m) for m in body["messages"]) + counter.tools(body.get("tools"))


CONFIG = {"models": {"m": {"targets": [{"provider": "openai"}], "context_window": WINDOW}}}


@pytest.mark.parametrize("tools", [False, True])
async def test_over_the_window_the_oldest_is_summarised_and_the_newest_stays(data, tools):
    async with Model(model) as up, running(up.url, data, CONFIG) as live:
        history = long_chat(30, tools)
        response = await live.chat(history, user="ada", max_tokens=200)
        assert response.status_code == 200
        sent = chats(up)[-1]
        check_valid(sent["messages"])
        assert size(sent) <= WINDOW * 0.9
        assert sent["messages"][-1] == user("and now?")
        assert sent["messages"][1]["role"] == "user"
        assert sent["messages"][0]["content"].startswith("be brief\n\n")
        assert "SUMMARY of what was said" in sent["messages"][0]["content"]
        summaries = [b for b in up.bodies if b not in chats(up)]
        assert summaries
        assert all(size(b) + b["max_tokens"] <= WINDOW for b in summaries)
        history += [response.json()["choices"][0]["message"], user("next")]
        await live.chat(history, user="ada", max_tokens=200)
        # The kept summary is reused.
        assert len(up.bodies) - len(chats(up)) == len(summaries)
        assert chats(up)[-1]["messages"][: len(sent["messages"])] == sent["messages"]


async def test_old_tool_results_are_elided_first(data):
    async with Model(model) as up, running(up.url, data, CONFIG) as live:
        history = [user("go")]
        for i in range(8):
            history += [
                {"role": "assistant", "content": None, "tool_calls": [call("look", {}, f"c{i}")]},
                {"role": "tool", "tool_call_id": f"c{i}", "content": "row " * 500},
            ]
            history += [{"role": "assistant", "content": f"done {i}"}, user(f"next {i}")]
        await live.chat(history, user="ada", max_tokens=200)
        sent = up.bodies[-1]
        check_valid(sent["messages"])
        assert len(up.bodies) == 1
        assert sum("were left out to save room" in str(m["content"]) for m in sent["messages"]) >= 5
        assert [m["content"] for m in sent["messages"] if m["role"] == "user"] == [
            m["content"] for m in history if m["role"] == "user"
        ]


async def test_what_a_stub_stands_for_is_found_by_search(data):
    search = calls(call("conversation_search", {"query": "zanzibar", "role": "tool"}))

    def scripted(seen, wire):
        return search if seen.json["messages"][-1]["content"] == "where?" else "ok"

    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        history = [user("go")]
        for i in range(8):
            history += [
                {"role": "assistant", "content": None, "tool_calls": [call("look", {}, f"c{i}")]},
                {
                    "role": "tool",
                    "tool_call_id": f"c{i}",
                    "content": f"zanzibar {i} " + "row " * 500,
                },
            ]
            history += [{"role": "assistant", "content": f"done {i}"}, user(f"next {i}")]
        answer = await live.chat(history, user="ada", max_tokens=200)
        assert "zanzibar 0" not in str(up.bodies[-1]["messages"])
        await live.chat(
            [*history, answer.json()["choices"][0]["message"], user("where?")],
            user="ada",
            max_tokens=200,
        )
        assert "zanzibar 0" in up.bodies[-1]["messages"][-1]["content"]


async def test_a_long_tool_loop_of_one_turn_still_fits(data):
    async with Model(model) as up, running(up.url, data, CONFIG) as live:
        history = [user("do it all")]
        for i in range(40):
            history += [
                {
                    "role": "assistant",
                    "content": "thinking aloud " * 20,
                    "tool_calls": [call("look", {}, f"c{i}")],
                },
                {"role": "tool", "tool_call_id": f"c{i}", "content": "row " * 100},
            ]
        assert (await live.chat(history, user="ada", max_tokens=200)).status_code == 200
        sent = chats(up)[-1]["messages"]
        check_valid(sent)
        assert size(chats(up)[-1]) <= WINDOW * 0.9
        assert user("do it all")["content"] in sent[1]["content"]
        assert sent[-1]["tool_call_id"] == "c39"


async def test_what_was_evicted_is_found_by_search(data):
    search = call("conversation_search", {"query": "zanzibar"})

    def scripted(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            return "SUMMARY"
        asked = seen.json["messages"][-1]
        return (
            {
                "message": {"role": "assistant", "content": None, "tool_calls": [search]},
                "finish_reason": "tool_calls",
            }
            if asked["content"] == "where?"
            else "ok"
        )

    async with Model(scripted) as up, running(up.url, data, CONFIG) as live:
        history = long_chat(30)
        history[1] = user("I once lived in Zanzibar. " + "words " * 40)
        answer = await live.chat(history, user="ada", max_tokens=200)
        history += [answer.json()["choices"][0]["message"], user("where?")]
        await live.chat(history, user="ada", max_tokens=200)
        assert "lived in Zanzibar" in chats(up)[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 1000 tokens",
                    "type": "invalid_request_error",
                    "code": "context_length_exceeded",
                    "param": "messages",
                }
            },
        ),
        (
            400,
            {
                "error": {
                    "message": "prompt is too long: 5000 tokens > 1000 maximum",
                    "type": "invalid_request_error",
                }
            },
        ),
        # What it says of itself is not what it takes.
        (
            400,
            {
                "error": {
                    "message": "prompt is too long: 130000 tokens > 128000 maximum",
                    "type": "invalid_request_error",
                }
            },
        ),
    ],
    ids=["code", "words", "misleading"],
)
async def test_an_unknown_window_is_learned_from_the_refusal(data, tools, refusal):
    def picky(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            return "SUMMARY"
        return refusal if size(seen.json) > 4500 else "fits"

    async with Model(picky) as up, running(up.url, data) as live:
        response = await live.chat(long_chat(25 if tools else 60, tools), user="ada", stream=True)
        assert "fits" in response.text
        check_valid(chats(up)[-1]["messages"])
        assert chats(up)[-1]["messages"][-1] == user("and now?")


async def test_what_cannot_fit_is_the_upstreams_own_400_with_its_code(data):
    refusal = (
        400,
        {"error": {"message": "prompt is too long: 1 > 0", "type": "invalid_request_error"}},
    )
    async with Model(refusal) as up, running(up.url, data) as live:
        response = await live.chat("hello", user="ada")
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["message"], error["code"]) == (
            "prompt is too long: 1 > 0",
            "context_length_exceeded",
        )
        assert len(up.requests) <= 3


async def test_a_failing_summariser_falls_back_and_the_turn_goes_on(data):
    def failing(seen, wire):
        if seen.json["messages"][0]["content"].startswith("You compress"):
            return (500, {"error": {"message": "no"}})
        return "ok"

    async with (
        Model(failing) as up,
        running(up.url, data, {**CONFIG, "routing.retries": 0}) as live,
    ):
        response = await live.chat(long_chat(30), user="ada", max_tokens=200)
        assert response.json()["choices"][0]["message"]["content"] == "ok"
        assert "earlier messages were left out" in chats(up)[-1]["messages"][0]["content"]
        assert "conversation_search" in json.dumps(chats(up)[-1])


@pytest.mark.parametrize("told", [True, False])
async def test_after_a_refusal_the_next_plan_fits(data, told):
    """The model counts three tokens where one was counted here.

    It refuses once, or not even twice, and never again.
    """
    # Our tools and blocks count three times, too.
    refused, roomy = [], 5000

    async def strict(seen, wire):
        true = 3 * size(seen.json)
        if true <= roomy:
            usage = {"prompt_tokens": true, "completion_tokens": 10, "total_tokens": true + 10}
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": model(seen, wire)},
                "finish_reason": "stop",
            }
            return await wire.json(
                {
                    "id": "c",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
            )
        refused.append(seen.json)
        text = (
            f"maximum context length is {roomy} tokens. However, your messages resulted in "
            f"{true} tokens."
            if told
            else "maximum context length exceeded"
        )
        return (
            400,
            {
                "error": {
                    "message": text,
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "context_length_exceeded",
                }
            },
        )

    config = {"models": {"m": {"targets": [{"provider": "openai"}], "context_window": roomy}}}
    async with (
        Model(strict) as up,
        running(up.url, data, {**config, "memory.summarize_ahead": False}) as live,
    ):
        history = long_chat(14)
        for i in range(12):
            answer = await live.chat(history, user="ada", max_tokens=200)
            assert answer.status_code == 200, answer.text
            if i == 0:
                first = len(
                    [
                        b
                        for b in refused
                        if not b["messages"][0]["content"].startswith("You compress")
                    ]
                )
                assert 1 <= first <= 2
            history += [
                answer.json()["choices"][0]["message"],
                user(f"and then {i}? " + "more words about it " * 12),
            ]
        chat = [b for b in refused if not b["messages"][0]["content"].startswith("You compress")]
        assert len(chat) == first
