"""Responses that the provider stores: chained, fetched, deleted; never another owner's."""

from __future__ import annotations

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, kinds, texts
from tests.wire_models import ResponsesModel, think, use

BOTH = pytest.mark.parametrize("stream", [False, True])


@BOTH
async def test_a_chained_call_goes_on_from_the_last_round(data, stream):
    script = [[use(APPEND, FACT)], "Noted.", "Tea."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        first, _ = await ask(live, "I like tea", stream=stream)
        assert first["id"] == "resp_1"
        shown, events = await ask(
            live, "And now?", stream=stream, previous_response_id=first["id"]
        )
        assert texts(shown) == ["Tea."]
        last_round = up.bodies[1]
        assert last_round["previous_response_id"] == "resp_1"
        assert up.bodies[2]["previous_response_id"] not in ("resp_1", None)
        for response in [shown, *(e["response"] for e in events if "response" in e)]:
            assert response["previous_response_id"] == first["id"]


@BOTH
async def test_after_a_mixed_turn_our_outputs_ride_along(data, stream):
    script = [[think(), use(APPEND, FACT), use("get_weather", {"city": "Oslo"})], "Rain."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        first, _ = await ask(live, "Weather?", stream=stream, tools=[WEATHER])
        (call,) = [i for i in first["output"] if i["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        await ask(
            live, [result], stream=stream, tools=[WEATHER], previous_response_id=first["id"]
        )
        assert kinds(up.bodies[1]["input"]) == ["function_call_output", "function_call_output"]


async def test_a_chain_is_one_conversation_and_holds_the_core_text_nowhere(data):
    async with ResponsesModel([use(APPEND, FACT)], "Noted.", "Yes.") as up:
        async with running(up.url, data) as live:
            names, before = set(), None
            for i in range(6):
                sent = {"model": "m", "input": f"Question {i}", "user": "ada"}
                if before:
                    sent["previous_response_id"] = before
                http = await live.http.post(f"{live.url}/responses", json=sent)
                assert http.status_code == 200, http.text
                before = http.json()["id"]
                names.add(http.headers["x-memory-conversation"])
            assert len(names) == 1
            held = [i for items in up.stored.values() for i in items]
            core = up.bodies[-1]["instructions"]
            assert core[:60] not in str(held)


async def test_an_unknown_response_is_not_found(data):
    async with ResponsesModel("Yes.") as up, running(up.url, data) as live:
        sent = {"model": "m", "input": "Hi", "user": "ada", "previous_response_id": "resp_x"}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.status_code == 404
        assert http.json()["error"]["code"] == "previous_response_not_found"
        assert up.requests == []
