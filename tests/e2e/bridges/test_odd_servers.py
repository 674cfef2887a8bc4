"""Memory at servers that stream in their own way, on their own API and over the bridges."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from tests.conftest import running
from tests.e2e.bridges import test_chat_at_responses as chat
from tests.e2e.messages import client as claude
from tests.e2e.responses import asking as codex
from tests.odd_servers import CHAT, MESSAGES, RESPONSES
from tests.wire_models import say, use

FACT = {"label": "human", "content": "Likes tea"}
APPEND = "core_memory_append"
OSLO = {"city": "Oslo"}
WIRES = {CHAT: "chat", RESPONSES: "responses", MESSAGES: "messages"}
SERVERS = {kind: wire for kinds, wire in WIRES.items() for kind in kinds}
PLAYED = [
    pytest.param(kind, client, id=f"{kind.__name__}-{client}")
    for kind, wire in SERVERS.items()
    for client in (("messages",) if wire == "messages" else ("chat", "responses", "messages"))
]
EVERY = pytest.mark.parametrize(("kind", "client"), PLAYED)


@asynccontextmanager
async def live_at(kind, up, data):
    wires = ["chat", "messages"] if SERVERS[kind] == "messages" else [SERVERS[kind]]
    config = {"providers": {"main": {"base_url": up.url, "wires": wires}}}
    async with running("", data, {**config, **claude.OWN}) as live:
        yield live


async def ask(client, live, words):
    """What a client of an API sees of a stream: its text, and what it is to call."""
    if client == "chat":
        told = await chat.ask(live, [codex.user(words)], stream=True, tools=[chat.WEATHER])
        message = told["choices"][0]["message"]
        functions = [c["function"] for c in message.get("tool_calls") or ()]
        calls = [(f["name"], json.loads(f["arguments"])) for f in functions]
        return message.get("content") or "", calls
    if client == "responses":
        tools = [{"type": "function", **chat.WEATHER["function"]}]
        told, events = await codex.ask(live, words, stream=True, store=False, tools=tools)
        assert APPEND not in json.dumps(events)
        called = [i for i in told["output"] if i["type"] == "function_call"]
        return "".join(codex.texts(told)), [(c["name"], json.loads(c["arguments"])) for c in called]
    answer = await claude.ask(live, words, stream=True, tools=[claude.WEATHER])
    called = [b for b in answer.content if b["type"] == "tool_use"]
    return answer.text, [(b["name"], b["input"]) for b in called]


@EVERY
async def test_what_is_told_in_one_turn_is_known_in_the_next(data, kind, client):
    script = [[say("Let me see."), use(APPEND, FACT)], "Noted.", "Tea."]
    async with kind(*script) as up, live_at(kind, up, data) as live:
        text, calls = await ask(client, live, "I like tea")
        assert (text.replace("\n", "").replace(" ", ""), calls) == ("Letmesee.Noted.", [])
        assert await ask(client, live, "What do I like?") == ("Tea.", [])
        assert json.dumps(up.bodies[-1]).count("Likes tea") == 1
        assert len(up.bodies) == len(script)


@EVERY
async def test_of_several_calls_the_client_sees_its_own(data, kind, client):
    calls = [use(APPEND, FACT), use("weather", OSLO), use("weather", {"city": "Bergen"})]
    async with kind(calls, "Later.") as up, live_at(kind, up, data) as live:
        seen = await ask(client, live, "Weather?")
        assert seen == ("", [("weather", OSLO), ("weather", {"city": "Bergen"})])
        await ask(client, live, "What do I like?")
        assert "Likes tea" in json.dumps(up.bodies[-1])


@EVERY
async def test_the_clients_own_calls_pass(data, kind, client):
    async with kind([say("So."), use("weather", OSLO)]) as up, live_at(kind, up, data) as live:
        assert await ask(client, live, "Weather?") == ("So.", [("weather", OSLO)])
