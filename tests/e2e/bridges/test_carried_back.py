"""What a server of chat completions wants back goes back, whatever API its client speaks."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.chat_only_model import ChatOnlyModel
from tests.conftest import running
from tests.demanding_models import SERVERS, DeepSeekModel, GeminiModel
from tests.e2e.messages import client as claude
from tests.e2e.postgres_chat import storage
from tests.e2e.responses import asking as codex
from tests.e2e.responses.asking import APPEND, FACT
from tests.wire_models import say, think, use

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
OPAQUE = pytest.mark.parametrize("opaque", [False, True], ids=["nowhere", "opaque"])
SERVED = pytest.mark.parametrize("server", SERVERS)
APIS = pytest.mark.parametrize("api", ["responses", "messages"])
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


class Client:
    """A program with a tool of its own. opaque: it asks for reasoning that it cannot read."""

    def __init__(self, api, live, *, stream, opaque, headers=None):
        self.api, self.live, self.stream = api, live, stream
        self.opaque, self.headers = opaque, headers or {}
        self.history = []

    async def ask(self, words):
        """The text of the answer, once all of its calls are answered."""
        self.history.append(codex.user(words))
        while calls := await self._round():
            self._answer(calls)
        return self.text

    async def _round(self):
        told = {"stream": self.stream, "headers": self.headers}
        if self.api == "messages":
            thinking = {"thinking": {"type": "adaptive"}} if self.opaque else {}
            tools = {"tools": [claude.WEATHER], **thinking}
            answer = await claude.ask(self.live, self.history, **told, **tools)
            assert ("thinking" in answer.kinds) <= self.opaque
            self.text = answer.text
            self.history.append(claude.said(answer))
            return [b for b in answer.content if b["type"] == "tool_use"]
        include = {"include": ["reasoning.encrypted_content"]} if self.opaque else {}
        tools = {"tools": [TOOL], "store": False, **include}
        shown, events = await codex.ask(self.live, self.history, **told, **tools)
        if self.stream:
            codex.check_stream(events)
        text = json.dumps([shown, events])
        assert APPEND not in text
        assert ("mnemogate-" in text) <= self.opaque
        self.text = "".join(codex.texts(shown))
        self.history += shown["output"]
        return [i for i in shown["output"] if i["type"] == "function_call"]

    def _answer(self, calls):
        if self.api == "messages":
            results = [claude.result(c, "rain") for c in calls]
            self.history.append(claude.user(*results))
        else:
            of = "function_call_output"
            self.history += [{"type": of, "call_id": c["call_id"], "output": "rain"} for c in calls]


OURS = [[use(APPEND, FACT)], "Noted."]
THEIRS = [[say("Hm."), use("weather", {"city": "A"})], [use("weather", {"city": "B"})], "Rain."]
BOTH = [use("weather", {"city": "C"}), use("weather", {"city": "D"}), use(APPEND, FACT)]
MIXED = [
    [use(APPEND, FACT)],
    BOTH,
    [use("weather", {"city": "E"})],
    [use(APPEND, {**FACT, "content": "Likes rain"})],
    "Rain.",
]


@STREAMED
@OPAQUE
@APIS
@SERVED
@pytest.mark.parametrize("script", [OURS, THEIRS, MIXED], ids=["ours", "theirs", "mixed"])
async def test_what_a_server_wants_back_goes_back(data, server, api, stream, opaque, script):
    last = script[-1]
    async with server(*script) as up, running(up.url, data) as live:
        client = Client(api, live, stream=stream, opaque=opaque)
        assert await client.ask("Weather?") == last
        assert len(up.bodies) == len(script)


@STREAMED
@OPAQUE
@APIS
@SERVED
async def test_it_goes_back_without_memory(data, server, api, stream, opaque):
    off = {"x-memory": "off"}
    async with server(*THEIRS) as up, running(up.url, data) as live:
        client = Client(api, live, stream=stream, opaque=opaque, headers=off)
        assert await client.ask("Weather?") == "Rain."


@APIS
@SERVED
@pytest.mark.parametrize("mode", ["full", "off"])
async def test_it_goes_back_after_a_restart(data, server, api, mode):
    """What a client carries is enough without memory; with memory it need not carry anything."""
    headers = {"x-memory": mode}
    async with server(*THEIRS) as up:
        async with running(up.url, data) as live:
            client = Client(api, live, stream=True, opaque=mode == "off", headers=headers)
            client.history.append(codex.user("Weather?"))
            client._answer(await client._round())
        async with running(up.url, data) as live:
            client.live = live
            client._answer(await client._round())
            assert await client._round() == []


class Elsewhere(Client):
    """One whose every request reaches another gateway than the one before it."""

    def __init__(self, api, gateways, **options):
        super().__init__(api, gateways[0], **options)
        self.gateways = itertools.cycle(gateways)

    async def _round(self):
        self.live = next(self.gateways)
        return await super()._round()


async def test_it_goes_back_from_another_gateway(postgres_url, data, tmp_path):
    """Both run at once on one database, and share nothing else."""
    shared = storage(postgres_url)
    async with SERVERS[0](*MIXED) as up, running(up.url, data, shared) as one:
        async with running(up.url, tmp_path / "other", shared) as other:
            for api, mode in itertools.product(("responses", "messages"), ("full", "off")):
                up.script[:] = MIXED if mode == "full" else THEIRS
                headers = {"x-memory": mode, "x-memory-user": f"{api}-{mode}"}
                client = Elsewhere(
                    api, (one, other), stream=True, opaque=mode == "off", headers=headers
                )
                assert await client.ask("Weather?") == "Rain.", (api, mode)


@APIS
async def test_an_id_alone_selects_nothing(data, api):
    """Two conversations with the same calls under the same ids, at once."""
    off = {"x-memory": "off"}
    script = [[use("weather", {"city": "A"})], [use("weather", {"city": "A"})], "One.", "Two."]
    async with Reasoning(*script) as up, running(up.url, data) as live:
        clients = [Client(api, live, stream=False, opaque=False, headers=off) for _ in "ab"]
        for number, client in enumerate(clients):
            client.history.append(codex.user(f"Weather {number}?"))
            client._answer(await client._round())
        for client in clients:
            await client._round()
        back = [m for b in up.bodies[2:] for m in b["messages"] if m.get("tool_calls")]
        assert [m["reasoning_content"] for m in back] == ["Thought 1", "Thought 2"]


class Reasoning(ChatOnlyModel):
    def reply(self, parts, body):
        return super().reply([think(f"Thought {self.n}"), *parts], body)

    def _call(self, part):
        return {**super()._call(part), "id": "call_0"}


@APIS
async def test_no_tenant_can_use_what_another_was_given(data, api):
    off = {"x-memory": "off"}
    async with Reasoning([use("weather", {"city": "A"})], "Rain.") as up:
        async with running(up.url, data, claude.OWN) as live:
            client = Client(api, live, stream=False, opaque=True, headers=off)
            client.history.append(codex.user("Weather?"))
            client._answer(await client._round())
            client.headers = {**off, "authorization": "Bearer sk-another-tenant"}
            await client._round()
            assert "reasoning_content" not in json.dumps(up.bodies[1])
            client.headers = off
            await client._round()
            assert "Thought 1" in json.dumps(up.bodies[2])


async def test_a_hidden_round_keeps_the_message_as_it_came(data):
    async with GeminiModel(*OURS) as up, running(up.url, data) as live:
        await Client("messages", live, stream=True, opaque=False).ask("I like tea")
        (asked,) = [m for m in up.bodies[1]["messages"] if m["role"] == "assistant"]
        assert asked["tool_calls"][0]["extra_content"]["google"]["thought_signature"]


async def test_a_server_of_the_format_is_never_sent_what_we_sealed(data):
    """A conversation moves from a server of chat completions to one of the API itself."""
    from tests.wire_models import MessagesModel

    async with DeepSeekModel(*THEIRS) as chat, MessagesModel("Rain.") as native:
        async with running(chat.url, data) as live:
            client = Client("messages", live, stream=False, opaque=True)
            client.history.append(codex.user("Weather?"))
            client._answer(await client._round())
        config = {"providers": {"main": {"kind": "anthropic", "base_url": native.url}}}
        for mode in ("off", "full"):
            async with running("", data, config) as live:
                client.live, client.headers = live, {"x-memory": mode}
                history = list(client.history)
                assert await client._round() == []
                client.history = history
        assert "mnemogate-" not in json.dumps(native.bodies)
