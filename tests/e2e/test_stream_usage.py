"""A refusal of the usage that we ask of a stream is about that alone, and what was left is told."""

from __future__ import annotations

import pytest

from gateway.chat.intake import capabilities
from tests.conftest import running
from tests.e2e.messages.client import OWN
from tests.models import Model, call, calls

APPEND = "core_memory_append"
FACT = {"label": "human", "content": "Likes tea"}
WORDS = {
    "strict": {"message": "stream_options: Extra inputs are not permitted", "param": None},
    "openai": {
        "message": "Unknown parameter: 'stream_options'.",
        "param": "stream_options",
        "code": "unknown_parameter",
    },
    "member": {"message": "Unsupported value: 'include_usage' is not supported with this model."},
    "path": {"message": "[{'loc': ('body', 'stream_options', 'include_usage')}] include: bad"},
}
ASKS = {
    "nothing": {},
    "options of its own": {"stream_options": {"include_obfuscation": False}},
    "usage": {"stream_options": {"include_usage": False}},
}


class WithoutUsage(Model):
    """A server that knows no usage of streams. words, status: its refusal."""

    words, status = WORDS["strict"], 400

    async def _behave(self, seen, wire):
        if (seen.json.get("stream_options") or {}).get("include_usage"):
            await wire.json({"error": self.words}, self.status)
        else:
            await super()._behave(seen, wire)


def tool_names(body):
    return [t["function"]["name"] for t in body.get("tools") or ()]


@pytest.mark.parametrize("own", ASKS)
@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("words", WORDS)
async def test_a_refused_stream_usage_leaves_the_tools(data, words, status, own):
    script = [calls(call(APPEND, FACT)), "Noted.", "Yes."]
    async with WithoutUsage(*script) as up, running(up.url, data, OWN) as live:
        up.words, up.status = WORDS[words], status
        for text in ("Noted.", "Yes."):
            http = await live.chat("I like tea", stream=True, user="ada", **ASKS[own])
            assert (http.status_code, http.headers["x-memory-status"]) == (200, "ok"), http.text
            assert text in http.text
            assert APPEND in tool_names(up.bodies[-1])
            assert up.bodies[-1].get("stream_options") == ASKS[own].get("stream_options")
            path = f"/explain/{http.headers['x-memory-explain']}"
            assert "`stream_options`" in (await live.memory("GET", path)).text
        refused = [b for b in up.bodies if (b.get("stream_options") or {}).get("include_usage")]
        assert len(refused) == 1, "it is known from then on"


async def test_it_is_tried_again_after_an_hour_and_not_asked_of_others(data, monkeypatch):
    async with WithoutUsage("Yes.") as up, running(up.url, data, OWN) as live:
        await live.chat("Hi", stream=True, user="ada")
        await live.chat("Hi", stream=True, user="ada", model="another")
        assert [bool(b.get("stream_options")) for b in up.bodies] == [True, False, True, False]
        monkeypatch.setattr(capabilities, "LACKS_SECONDS", 0.0)
        await live.chat("Hi", stream=True, user="ada")
        assert [bool(b.get("stream_options")) for b in up.bodies[4:]] == [True, False]


async def test_what_the_client_itself_asks_is_refused_to_it_and_nothing_is_learnt(data):
    options = {"stream_options": {"include_usage": True}}
    async with WithoutUsage("Yes.") as up, running(up.url, data, OWN) as live:
        refused = await live.chat("Hi", stream=True, user="ada", **options)
        assert refused.status_code == 400
        assert "stream_options" in refused.text
        assert not live.gateway.lacks.names()
        plain = await live.chat("Hi", user="ada")
        assert (plain.status_code, plain.headers["x-memory-status"]) == (200, "ok")
        assert APPEND in tool_names(up.bodies[-1])
