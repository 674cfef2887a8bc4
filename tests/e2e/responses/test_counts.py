"""Tokens of a response are counted with the memory in it, and nothing is written."""

from __future__ import annotations

import json

import pytest

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, WEATHER, ask, user
from tests.wire_models import ResponsesModel, use


async def test_what_is_counted_is_what_would_be_sent(data):
    def count(seen, wire):
        return wire.json({"object": "response.input_tokens", "input_tokens": 7})

    script = [[use(APPEND, FACT)], "Noted.", count, "Tea."]
    config = {"server.single_user": False}
    async with ResponsesModel(*script) as up, running(up.url, data, config) as live:
        await ask(live, "I like tea", store=False)
        before = (await live.memory("GET", "/users/ada/conversations")).json()
        sent = {"model": "m", "input": "What do I like?", "user": "ada", "store": False}
        http = await live.http.post(f"{live.url}/responses/input_tokens", json=sent)
        assert (http.status_code, http.json()["input_tokens"]) == (200, 7)
        assert (await live.memory("GET", "/users/ada/conversations")).json() == before
        await ask(live, "What do I like?", store=False)
        counted, asked = up.requests[-2], up.requests[-1]
        assert counted.path == "/v1/responses/input_tokens"
        members = ("input", "instructions", "tools", "model")
        assert {m: counted.json.get(m) for m in members} == {m: asked.json[m] for m in members}


def tokens_of(body):
    told = [body.get(m) for m in ("instructions", "input", "tools", "previous_response_id")]
    return len(json.dumps(told)) // 4


COUNTABLE = frozenset(
    """
    conversation input instructions model parallel_tool_calls previous_response_id reasoning text
    tool_choice tools truncation
    """.split()  # noqa: SIM905
)


class Counting(ResponsesModel):
    """Bills what it counts, and counts no member that the API does not."""

    async def serve_other(self, seen, wire):
        if not seen.path.endswith("/input_tokens"):
            return await super().serve_other(seen, wire)
        self.faults += [f"count: {m}" for m in set(seen.json) - COUNTABLE]
        await wire.json({"object": "response.input_tokens", "input_tokens": tokens_of(seen.json)})
        return True

    def reply(self, parts, body):
        found = super().reply(parts, body)
        return {**found, "usage": {**found["usage"], "input_tokens": tokens_of(body)}}


async def test_the_count_is_what_the_request_is_billed(data):
    script = [[use(APPEND, FACT)], "Noted.", "So."]
    config = {"server.single_user": False}
    async with Counting(*script) as up, running(up.url, data, config) as live:
        first, _ = await ask(live, "I like tea")
        headers = {"x-memory-user": "ada"}
        for more in (
            {},
            {"instructions": "Be brief."},
            {"previous_response_id": first["id"]},
            {"reasoning": {"effort": "low"}},
            {"tools": [WEATHER]},
        ):
            sent = {"model": "m", "input": [{"role": "user", "content": "What?"}], **more}
            path = f"{live.url}/responses"
            counted = await live.http.post(f"{path}/input_tokens", json=sent, headers=headers)
            billed = await live.http.post(path, json=sent, headers=headers)
            assert billed.json()["usage"]["input_tokens"] == counted.json()["input_tokens"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
async def test_usage_never_tells_more_than_the_context_holds(data, stream, store):
    """A program compacts by it: the sum of the rounds would throw its history away."""
    window, more = 100_000, {**FACT, "content": "Has a cat"}
    script = [[use(APPEND, FACT)], [use(APPEND, more)], "Noted."]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        usual = up.reply

        def large(parts, body):
            used = window * 6 // 10 + up.n * 1000
            told = {"input_tokens": used, "output_tokens": 10, "total_tokens": used + 10}
            return {**usual(parts, body), "usage": told}

        up.reply = large
        shown, events = await ask(live, [user("Hi")], stream=stream, store=store)
        assert len(up.bodies) == 3
        told = [shown, *(e["response"] for e in events if "response" in e)]
        used = [r["usage"]["total_tokens"] for r in told if r.get("usage")]
        assert max(used) <= window * 7 // 10
