"""How answers of `/v1/responses` end: whole, broken off, and with the upstream's own faults."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, check_stream, names, texts
from tests.wire_models import ResponsesModel, say, sse, use

ONCE = {"routing.retries": 0}
SLOW = {"code": "rate_limit_exceeded", "message": "Slow down.", "param": None}
FAILED = {"code": "server_error", "message": "Gone."}
PAIR = [say("Wait."), use(APPEND, FACT)]


def streamed(up, parts, change):
    """An answer whose events were changed."""

    async def behave(seen, wire):
        await wire.start_stream()
        for event in change(list(up.events(up.reply(parts, seen.json)))):
            await up.write_event(wire, event)
        await wire.end()

    return behave


def ending(events, **members):
    """The same stream, with other members of the response at its end."""
    return [*events[:-1], {**events[-1], "response": {**events[-1]["response"], **members}}]


def failing(events):
    """The same stream, up to the upstream's own fault."""
    response = {**events[0]["response"], "status": "failed", "error": FAILED}
    return [*events[:5], {"type": "response.failed", "response": response, "sequence_number": 5}]


async def told(live, text="I like tea", **body):
    """The events of a stream that may fail."""
    sent = {"model": "m", "input": text, "user": "ada", "stream": True, **body}
    http = await live.http.post(f"{live.url}/responses", json=sent)
    assert http.status_code == 200, http.text
    assert APPEND not in http.text
    return sse(http.text)


@pytest.mark.parametrize("rounds", [1, 2])
async def test_an_ending_without_the_items_is_given_those_that_were_shown(data, rounds):
    async with ResponsesModel("x") as up, running(up.url, data) as live:
        empty = streamed(up, [say("Noted.")], lambda events: ending(events, output=[]))
        up.script = [PAIR, empty][2 - rounds :]
        shown, events = await ask(live, "I like tea", stream=True)
        check_stream(events)
        assert texts(shown) == ["Wait.", "Noted."][2 - rounds :]


async def test_an_ending_under_another_id_has_the_one_that_was_begun(data):
    async with ResponsesModel("x") as up, running(up.url, data) as live:
        up.script = [streamed(up, [say("Hi.")], lambda events: ending(events, id="resp_other"))]
        _, events = await ask(live, "Hello", stream=True)
        check_stream(events)


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("nested", [False, True])
async def test_an_error_event_of_the_upstreams_passes_as_it_came(data, rounds, nested):
    error = {"type": "error", **({"error": SLOW} if nested else SLOW), "sequence_number": 5}
    async with ResponsesModel("x") as up, running(up.url, data, ONCE) as live:
        fails = streamed(up, [say("One two three")], lambda events: [*events[:5], error])
        up.script = [PAIR, fails][2 - rounds :]
        events = await told(live)
        assert events[-1] == {**error, "sequence_number": len(events) - 1}
        assert not [e for e in events if e["type"] == "response.failed"]


async def test_a_failed_response_of_the_upstreams_passes_as_it_came(data):
    async with ResponsesModel("x") as up, running(up.url, data, ONCE) as live:
        up.script = [streamed(up, [say("One two")], failing)]
        events = await told(live, instructions="Be brief.", tools=[WEATHER])
        response = events[-1]["response"]
        assert (events[-1]["type"], response["error"]) == ("response.failed", FAILED)
        assert "error" not in events[-1]
        assert (response["instructions"], names(response)) == ("Be brief.", ["get_weather"])


async def test_a_failed_response_of_a_later_round_is_the_one_that_was_begun(data):
    async with ResponsesModel("x") as up, running(up.url, data, ONCE) as live:
        up.script = [PAIR, streamed(up, [say("One two")], failing)]
        events = await told(live)
        first, last = events[0]["response"], events[-1]["response"]
        same = ("id", "model", "created_at")
        assert [last[m] for m in same] == [first[m] for m in same]
        assert (last["status"], last["error"]) == ("failed", FAILED)
        assert texts(last)[0] == "Wait."


async def test_a_cut_response_repeats_the_clients_own_request(data):
    async with ResponsesModel("x") as up, running(up.url, data, ONCE) as live:
        up.script = [streamed(up, [say("One two three")], lambda events: events[:6])]
        events = await told(live, instructions="Be brief.", tools=[WEATHER], store=False)
        found = events[-1]
        assert found["type"] == "response.failed"
        assert found["error"] == found["response"]["error"]
        assert found["error"]["code"] == "stream_incomplete"
        members = {"instructions": "Be brief.", "store": False, "status": "failed"}
        assert {m: found["response"][m] for m in members} == members
        assert names(found["response"]) == ["get_weather"]
        assert found["sequence_number"] == len(events) - 1


async def test_a_whole_response_that_failed_is_the_clients_as_it_came(data):
    def failed(seen, wire):
        return wire.json({**up.reply([say("One")], seen.json), "status": "failed", "error": FAILED})

    async with ResponsesModel(failed) as up, running(up.url, data, ONCE) as live:
        shown, _ = await ask(live, "Hello", instructions="Be brief.")
        assert (shown["status"], shown["error"]) == ("failed", FAILED)
        assert shown["instructions"] == "Be brief."
        assert len(up.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_that_begins_with_an_error_is_refused_in_json(data, stream):
    error = {"type": "error", **SLOW, "sequence_number": 0}
    async with ResponsesModel("x") as up, running(up.url, data, ONCE) as live:
        up.script = [streamed(up, [], lambda events: [error])]
        sent = {"model": "m", "input": "Hi", "user": "ada", "stream": stream}
        http = await live.http.post(f"{live.url}/responses", json=sent)
        assert http.headers["content-type"] == "application/json"
        assert json.loads(http.text)["error"]["message"] == SLOW["message"]


async def test_a_failed_response_never_tells_the_providers_key(data):
    key = "sk-0123456789abcdef0123"
    spoken = {**FAILED, "message": f"{key} is bad"}
    async with ResponsesModel("x") as up:
        provider = {"kind": "openai", "base_url": up.url, "api_key": key}
        managed = [{"name": "app", "key": "mg-0123456789abcdef0123", "tenant": "t"}]
        config = {"providers": {"main": provider}, "keys": managed, **ONCE}
        async with running("", data, config, key="mg-0123456789abcdef0123") as live:

            def fails(events):
                failed = failing(events)
                return [*failed[:-1], ending(failed, error=spoken)[-1]]

            up.script = [streamed(up, [say("One two")], fails)]
            events = await told(live)
            assert events[-1]["response"]["error"]["code"] == FAILED["code"]
            assert key not in json.dumps(events)
