"""A body is legal at a strict server whatever the ledger still holds of what was hidden."""

from __future__ import annotations

import itertools
import json

import pytest

from memory.errors import StoreUnavailable
from tests.conftest import running
from tests.demanding_models import DeepSeekModel
from tests.e2e.messages import client as claude
from tests.e2e.responses import asking as codex
from tests.e2e.responses.asking import APPEND, FACT
from tests.wire_models import MessagesModel, ResponsesModel, say, think, use

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
LOSSES = ["erased", "write", "off", "renamed", "compaction", "store down"]
WAYS = pytest.mark.parametrize("way", LOSSES)
SHAPES = pytest.mark.parametrize("shape", ["pure", "mixed", "bare"])
SCRIPTS = {
    "pure": [[think("A"), use(APPEND, FACT)], [think("B"), say("Noted.")], "Yes."],
    "bare": [[think("A"), use(APPEND, FACT)], [say("Noted.")], "Yes."],
    "mixed": [[think("A"), use(APPEND, FACT), use("weather", {"city": "A"})], "Yes."],
}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


class StrictResponses(ResponsesModel):
    """Reasoning is taken with the very item that it was given with, which needs it in turn."""

    def __init__(self, *script):
        super().__init__(*script)
        self.followers = {}
        self.needs = {}

    def reply(self, parts, body):
        reply = super().reply(parts, body)
        for item, follower in zip(reply["output"], reply["output"][1:], strict=False):
            if item["type"] == "reasoning":
                self.followers[item["encrypted_content"]] = follower["id"]
                self.needs[follower["id"]] = item["encrypted_content"]
        return reply

    def check(self, body):
        yield from super().check(body)
        items = body["input"] if isinstance(body["input"], list) else []
        for item, follower in zip(items, [*items[1:], {}], strict=False):
            if item.get("type") == "reasoning":
                sealed = item.get("encrypted_content")
                if sealed not in self.followers:
                    yield f"404: reasoning that cannot be read: {sealed}"
                elif follower.get("id") != self.followers[sealed]:
                    yield f"reasoning without its required following item: {item}"
        for before, item in zip([{}, *items], items, strict=False):
            needed = self.needs.get(item.get("id"))
            if needed and before.get("encrypted_content") != needed:
                yield f"an item without its required reasoning: {item}"


class StrictMessages(MessagesModel):
    """Thinking is taken with the very block that it was given with."""

    def __init__(self, *script):
        super().__init__(*script)
        self.followers = {}

    def reply(self, parts, body):
        reply = super().reply(parts, body)
        for block, follower in zip(reply["content"], reply["content"][1:], strict=False):
            if block["type"] == "thinking":
                self.followers[block["signature"]] = json.dumps(follower)
        return reply

    def check(self, body):
        yield from super().check(body)
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            for block, follower in zip(blocks, [*blocks[1:], {}], strict=False):
                if block["type"] == "thinking":
                    wanted = self.followers.get(block["signature"], "{}")
                    if json.dumps(follower) != wanted:
                        yield f"thinking whose follower is {follower}, not {wanted}"


async def lose(way, live, data):
    """What makes the hidden exchange unknown: the headers and members of later requests."""
    if way == "erased":
        token = data / "token"
        local = {}
        # Else each key is a tenant.
        if token.exists():
            local = {"authorization": f"Bearer {token.read_text().strip()}"}
        assert (await live.memory("DELETE", "/users/ada", headers=local)).status_code < 300
    if way == "store down":
        take_the_store_away(live)
    headers = {"write": {"x-memory": "write"}, "off": {"x-memory": "off"}}.get(way, {})
    if way == "compaction":
        metadata = json.dumps({"request_kind": "compaction"})
        headers = {"x-codex-turn-metadata": metadata, "user-agent": "codex_exec/0.169.0"}
    return headers


def take_the_store_away(live):
    """Every read and write fails from now on, and nothing that was read before is believed."""

    async def fails(*_, **__):
        raise StoreUnavailable("broken for the test")

    live.gateway.memory.begin = fails
    db = live.gateway.memory.db
    db.read, db.write = fails, fails


def check_status(http, way):
    if way == "store down":
        assert http.headers["x-memory-status"] == "degraded"
        assert "store is unavailable" in http.headers["x-memory-reason"]
    if way in ("erased", "write", "renamed"):
        assert http.headers["x-memory-status"] == "degraded"
        assert "put back" in http.headers["x-memory-reason"]


def as_written(item):
    """An item as it came."""
    return item


def going_on(shown, write=as_written):
    """The history that a client sends next: its calls answered, or else another question."""
    calls = [i["call_id"] for i in shown["output"] if i["type"] == "function_call"]
    outputs = "function_call_output"
    newest = [{"type": outputs, "call_id": name, "output": "rain"} for name in calls]
    history = [codex.user("Hi"), *map(write, shown["output"])]
    return [*history, *(newest or [codex.user("And now?")])]


@STREAMED
@WAYS
@SHAPES
async def test_responses_are_legal_without_the_ledger(data, stream, way, shape):
    body = {"store": False, "include": ["reasoning.encrypted_content"], "tools": [TOOL]}
    async with StrictResponses(*SCRIPTS[shape]) as up, running(up.url, data) as live:
        shown, events = await codex.ask(live, [codex.user("Hi")], stream=stream, **body)
        if stream:
            codex.check_stream(events)
        history = going_on(shown)
        headers = await lose(way, live, data)
        user = {"user": "bob"} if way == "renamed" else {"user": "ada"}
        sent = {"model": "m", "input": history, **user, **body}
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers)
        assert http.status_code == 200, http.text
        assert "mnemogate-" not in json.dumps(up.bodies)
        check_status(http, way)


@STREAMED
@WAYS
@SHAPES
async def test_messages_are_legal_without_the_ledger(data, stream, way, shape):
    body = {"thinking": {"type": "adaptive"}, "tools": [claude.WEATHER]}
    async with StrictMessages(*SCRIPTS[shape]) as up:
        providers = {"main": {"kind": "anthropic", "base_url": up.url}}
        async with running("", data, {"providers": providers, **claude.OWN}) as live:
            first = await claude.ask(live, "Hi", stream=stream, **body)
            calls = [b for b in first.content if b["type"] == "tool_use"]
            newest = claude.user(*map(claude.result, calls)) if calls else claude.user("And now?")
            history = [claude.user("Hi"), claude.said(first), newest]
            headers = await lose(way, live, data)
            who = {"metadata": {"user_id": "bob"}} if way == "renamed" else {}
            again = await claude.ask(live, history, stream=stream, headers=headers, **body, **who)
            assert again.text == "Yes."
            assert "mnemogate-" not in json.dumps(up.bodies)
            if way != "compaction":
                check_status(again.response, way)


class StoringResponses(ResponsesModel):
    """One that stores its items, and tells reasoning by its id alone unless asked for more.

    An item of its own is known by its id, and is taken only beside what it was given with.
    """

    def __init__(self, *script):
        super().__init__(*script)
        # The id of reasoning, and of its follower, both ways.
        self.beside = {}

    def reply(self, parts, body):
        reply = super().reply(parts, body)
        output = reply["output"]
        for item, follower in itertools.pairwise(output):
            if item["type"] == "reasoning":
                self.beside |= {item["id"]: follower["id"], follower["id"]: item["id"]}
        if "reasoning.encrypted_content" not in (body.get("include") or ()):
            for item in output:
                item.pop("encrypted_content", None)
        return reply

    def check(self, body):
        yield from super().check(body)
        items = body["input"] if isinstance(body["input"], list) else []
        kinds = {i["id"]: i["type"] for i in self.stored_items() if "id" in i}
        names = [item.get("id") for item in items]
        for at, item in enumerate(items):
            name = item.get("id")
            kind = kinds.get(name) if item.get("type") == "item_reference" else item.get("type")
            if item.get("encrypted_content"):
                yield f"404: content that cannot be read: {item}"
            if kind == "reasoning" and name not in self.beside:
                yield f"404: no such item: {name}"
            elif kind == "reasoning" and names[at + 1 : at + 2] != [self.beside[name]]:
                yield f"{name} without its required following item"
            elif name in self.beside and kind != "reasoning":
                before = names[at - 1] if at else None
                if before != self.beside[name]:
                    yield f"{name} without its required reasoning item"


def as_sdk(item):
    """An item as the Python SDK sends it again: with members that were not told."""
    return {"encrypted_content": None, "status": None, **item}


def as_reference(item):
    """An item by its id alone, but for calls, whose results name them."""
    return item if "call_id" in item else {"type": "item_reference", "id": item["id"]}


# What memory does not look at, or nobody knows any more, cannot be named by its id alone.
REFERRED = [(as_reference, way) for way in ("nothing", "write")]


@pytest.mark.parametrize(
    ("write", "way"),
    [*itertools.product([as_written, as_sdk], ["nothing", *LOSSES]), *REFERRED],
)
@STREAMED
@SHAPES
async def test_stored_reasoning_is_legal_by_its_id_alone(data, stream, way, shape, write):
    """`store: true`, and the client sends its history again all the same."""
    body = {"store": True, "tools": [TOOL]}
    async with StoringResponses(*SCRIPTS[shape]) as up, running(up.url, data) as live:
        shown, events = await codex.ask(live, [codex.user("Hi")], stream=stream, **body)
        if stream:
            codex.check_stream(events)
        history = going_on(shown, write)
        headers = await lose(way, live, data)
        user = {"user": "bob"} if way == "renamed" else {"user": "ada"}
        sent = {"model": "m", "input": history, **user, **body}
        http = await live.http.post(f"{live.url}/responses", json=sent, headers=headers)
        assert http.status_code == 200, http.text
        assert "mnemogate-" not in json.dumps(up.bodies)
        check_status(http, way)
        if way == "nothing":
            assert http.headers["x-memory-status"] == "ok"


@pytest.mark.parametrize("way", ["erased", "write", "off"])
async def test_a_chat_server_gets_its_reasoning_without_the_hidden_call(data, way):
    """The client's own call is still in its loop, and its server wants the reasoning."""
    body = {"thinking": {"type": "adaptive"}, "tools": [claude.WEATHER]}
    script = [[use(APPEND, FACT), use("weather", {"city": "A"})], "Yes."]
    async with LenientDeepSeek(*script) as up, running(up.url, data) as live:
        first = await claude.ask(live, "Hi", stream=True, **body)
        call = first.content[-1]
        history = [claude.user("Hi"), claude.said(first), claude.user(claude.result(call))]
        headers = await lose(way, live, data)
        await claude.ask(live, history, stream=False, headers=headers, **body)
        (said,) = [m for m in up.bodies[-1]["messages"] if m["role"] == "assistant"]
        assert said["reasoning_content"].startswith("I think")


class LenientDeepSeek(DeepSeekModel):
    """It does not know its calls by all of them, since one of them was hidden."""

    def check(self, body):
        yield from ()
