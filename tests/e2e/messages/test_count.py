"""The tokens of a request, counted as it will be sent."""

from __future__ import annotations

import asyncio

import pytest

from memory.errors import StoreUnavailable
from memory.stores.sql.engine.database import Database
from tests.conftest import running
from tests.e2e.messages.client import (
    MARK,
    OWN,
    REMEMBER,
    TEA,
    WEATHER,
    ask,
    ours_of,
    said,
    text,
    text_in,
    user,
)
from tests.wire_models import MessagesModel, think

ADA = {"x-memory-user": "ada"}


async def counted(live, messages, headers=ADA, root=None, **body):
    """The answer to the question for a request's tokens."""
    url = f"{root or live.url}/messages/count_tokens?beta=true"
    sent = {"model": "m", "messages": messages, **body}
    return await live.http.post(url, json=sent, headers=headers)


async def test_the_count_is_what_the_request_is_billed(data, stream):
    script = ("Hi.", [think(), REMEMBER], "Noted.", "Tea.", "Yes.")
    async with MessagesModel(*script) as up, running(up.url, data) as live:
        body = {"system": [text("Be brief.", **MARK)], "tools": [WEATHER]}
        first = await ask(live, "Hello", stream=stream, headers=ADA, **body)
        noted = await ask(live, "I like tea", stream=stream, headers=ADA, **body)
        for talk in (
            [user("New")],
            # Which gets a note.
            [user("Hello"), said(first), user("What?")],
            # After a hidden exchange.
            [user("I like tea"), said(noted), user("And?")],
        ):
            count = (await counted(live, talk, **body)).json()
            answer = await ask(live, talk, stream=stream, headers=ADA, **body)
            usage = answer.message["usage"]
            sent = usage["input_tokens"] + usage["cache_read_input_tokens"]
            assert count == {"input_tokens": sent}
            members = ("system", "tools", "messages")
            assert [up.bodies[-2][m] for m in members] == [up.bodies[-1][m] for m in members]
        assert TEA["content"] in text_in(up.bodies[-3]["messages"])


async def test_a_count_leaves_no_trace(data):
    async with MessagesModel("Hi.") as up, running(up.url, data, OWN) as live:
        for _ in range(2):
            response = await counted(live, [user("Hello")])
            assert response.headers["x-memory-status"] == "ok"
            assert "x-memory-explain" not in response.headers
        found = (await live.memory("GET", "/users/ada/conversations")).json()
        assert not found.get("data")
        first = await ask(live, "Hello", stream=False, headers=ADA)
        talk = [user("Hello"), said(first), user("And?")]
        before = (await live.memory("GET", "/users/ada/conversations")).json()
        await asyncio.gather(*(counted(live, talk) for _ in range(3)))
        assert (await live.memory("GET", "/users/ada/conversations")).json() == before
        # The same conversation and the same epoch go on.
        second = await ask(live, talk, stream=False, headers=ADA)
        assert (
            second.response.headers["x-memory-conversation"]
            == first.response.headers["x-memory-conversation"]
        )
        assert up.bodies[-1]["system"] == up.bodies[2]["system"]


async def test_a_count_that_asks_for_no_memory_is_relayed(data):
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        response = await counted(live, [user("Hello")], {**ADA, "x-memory": "off"})
        assert response.headers["x-memory-status"] == "off"
        assert up.bodies == [{"model": "m", "messages": [user("Hello")]}]
        assert up.requests[0].path == "/v1/messages/count_tokens?beta=true"


async def test_a_count_for_a_user_in_the_path_and_a_model_by_another_name(data):
    async with MessagesModel([REMEMBER], "Noted.") as up:
        config = {
            "models": {"claude": {"targets": [{"provider": "main", "model": "claude-large"}]}},
            "providers": {"main": {"kind": "anthropic", "base_url": up.url}},
        }
        async with running("", data, config) as live:
            root = f"{live.root}/u/bob/v1"
            await ask(
                live, "I like tea", stream=False, headers={"x-memory-user": "bob"}, model="claude"
            )
            await counted(live, [user("Hello")], {}, root, model="claude")
            assert up.bodies[-1]["model"] == "claude-large"
            assert TEA["content"] in up.bodies[-1]["system"]
            assert ours_of(up.bodies[-1])


async def test_a_count_goes_without_a_store_that_is_down(data, monkeypatch):
    async def down(*_, **__):
        raise StoreUnavailable("down")

    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        monkeypatch.setattr(Database, "read", down)
        response = await counted(live, [user("Hello")])
        assert response.headers["x-memory-status"] == "degraded"
        assert response.json()["input_tokens"] > 0
        assert up.bodies == [{"model": "m", "messages": [user("Hello")]}]


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "x"}])
async def test_a_body_that_cannot_be_counted_is_refused_as_a_message_is(data, body):
    async with MessagesModel("Hi.") as up, running(up.url, data) as live:
        response = await live.http.post(
            f"{live.url}/messages/count_tokens", json={"model": "m", **body}
        )
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert not up.requests
