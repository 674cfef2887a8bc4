"""A refusal is about what it names; what memory gave up is told."""

from __future__ import annotations

import json

import pytest

from gateway.chat.intake import capabilities
from tests.conftest import running
from tests.e2e.messages.client import OWN
from tests.e2e.responses.asking import APPEND, FACT, ask, names, user
from tests.wire_models import ResponsesModel, say, think, use

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
WORDS = [
    {"message": "Encrypted content is not supported with this model.", "param": "include"},
    {"message": "include: Extra inputs are not permitted", "param": None},
    {"message": "Unknown parameter: 'include'.", "code": "unknown_parameter"},
]


class WithoutInclude(ResponsesModel):
    """A server that knows no encrypted reasoning."""

    words = WORDS[0]

    async def _behave(self, seen, wire):
        if seen.method == "POST" and seen.json.get("include"):
            await wire.json({"error": self.words}, 400)
        else:
            await super()._behave(seen, wire)


@STREAMED
@pytest.mark.parametrize("words", WORDS)
async def test_a_refused_include_leaves_the_tools(data, stream, words):
    script = [[use(APPEND, FACT)], "Noted.", "Yes."]
    async with WithoutInclude(*script) as up, running(up.url, data, OWN) as live:
        up.words = words
        for text in ("Noted.", "Yes."):
            http = await post(live, "I like tea", stream)
            assert http.headers["x-memory-status"] == "ok"
            assert text in http.text
            assert APPEND in names(up.bodies[-1])
        # Then it is known.
        assert sum(1 for b in up.bodies if b.get("include")) == 1


async def post(live, words, stream=False):
    body = {"model": "m", "input": words, "user": "ada", "store": False, "stream": stream}
    http = await live.http.post(f"{live.url}/responses", json=body)
    assert http.status_code == 200, http.text
    return http


async def test_what_was_refused_is_told_and_expires(data, monkeypatch):
    async def refuse_tools(seen, wire):
        if seen.json.get("tools"):
            return 400, {"error": {"message": "tools are not supported", "param": "tools"}}
        return "Yes."

    async with ResponsesModel(refuse_tools) as up, running(up.url, data, OWN) as live:
        first, again = await post(live, "Hi"), await post(live, "Hi again")
        for http in (first, again):
            assert http.headers["x-memory-status"] == "degraded"
        assert "tools" in again.headers["x-memory-reason"]
        explained = await live.memory("GET", f"/explain/{again.headers['x-memory-explain']}")
        assert "memory tools" in explained.text
        monkeypatch.setattr(capabilities, "LACKS_SECONDS", 0.0)
        await post(live, "And now?")
        assert up.bodies[-2].get("tools")


class Forgetful(ResponsesModel):
    """Zero retention: it says that it stores, and keeps nothing; reasoning must be readable."""

    async def _behave(self, seen, wire):
        if seen.method == "POST" and seen.json.get("previous_response_id"):
            await wire.json({"error": {"message": "Previous response not found."}}, 404)
        else:
            await super()._behave(seen, wire)

    def check(self, body):
        yield from super().check({k: v for k, v in body.items() if k != "previous_response_id"})

    def _item(self, part):
        return {k: v for k, v in super()._item(part).items() if k != "encrypted_content"}


@STREAMED
async def test_a_server_that_keeps_nothing_is_sent_all_and_known(data, stream):
    script = [[think(), use(APPEND, FACT)], "Noted."]
    async with Forgetful(*script, *script) as up, running(up.url, data) as live:
        up.check = lambda body: ()
        await ask(live, [user("I like tea")], stream=stream)
        await ask(live, [user("I like tea")], stream=stream, user="bob")
        chained = [b for b in up.bodies if b.get("previous_response_id")]
        assert len(chained) == 1
        for body in (up.bodies[2], up.bodies[-1]):
            kinds = [i.get("type") for i in body["input"]]
            assert kinds[-2:] == ["function_call", "function_call_output"]
            assert "reasoning" not in kinds
            assert "id" not in body["input"][-2]


@STREAMED
async def test_encrypted_reasoning_is_asked_for_and_hidden_again(data, stream):
    script = [[think(), use(APPEND, FACT)], [think(), say("Noted.")]]
    async with ResponsesModel(*script) as up, running(up.url, data) as live:
        shown, events = await ask(live, [user("I like tea")], stream=stream, store=False)
        assert all(b["include"] == ["reasoning.encrypted_content"] for b in up.bodies)
        told = json.dumps([shown, events])
        assert "encrypted_content" not in told
        (reasoning,) = [i for i in up.bodies[1]["input"] if i.get("type") == "reasoning"]
        assert reasoning["encrypted_content"]
