"""Tokens of a response are counted with the memory in it, and nothing is written."""

from __future__ import annotations

from tests.conftest import running
from tests.e2e.responses.asking import APPEND, FACT, ask
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
