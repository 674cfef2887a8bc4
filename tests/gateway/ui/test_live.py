"""Feeds: how many may be open, and that a turn which ends late is not lost."""

from __future__ import annotations

import asyncio
import re
import time
from html import unescape

import pytest
from sqlalchemy import func, select, update

from gateway.errors import Unavailable
from gateway.ui.live import MAX_FEEDS, MAX_SESSION_FEEDS, FeedLimit
from memory.stores.sql.engine import schema
from tests.conftest import SENTINEL_KEY
from tests.e2e.operator_tools import ToolServer
from tests.gateway.management.managing import KEYS, as_key
from tests.gateway.ui.looking import links, shown, words
from tests.models import call, calls


async def nothing():
    yield b""


def test_the_feeds_of_a_session_are_limited_before_they_are_read():
    limit = FeedLimit()
    held = [limit.open("a", nothing()) for _ in range(MAX_SESSION_FEEDS)]
    with pytest.raises(Unavailable, match=f"at most {MAX_SESSION_FEEDS} and {MAX_FEEDS}"):
        limit.open("a", nothing())
    held += [limit.open(f"s{i}", nothing()) for i in range(MAX_FEEDS - MAX_SESSION_FEEDS)]
    with pytest.raises(Unavailable):
        limit.open("b", nothing())
    # Never read, and gone.
    held.clear()
    assert limit.open("a", nothing())


async def test_a_feed_that_has_ended_leaves_its_place():
    limit = FeedLimit()
    held = [limit.open("a", nothing()) for _ in range(MAX_SESSION_FEEDS)]
    assert [part async for part in held[0]] == [b"retry: 2000\n: live\n\n"]
    held.append(limit.open("a", nothing()))
    await held[1].__anext__()
    await held[1].aclose()
    assert limit.open("a", nothing())


async def _events(looker, number, last="", path="/ui/feed/events"):
    """The ids and the texts of a feed's first events."""
    out = []
    headers = {"last-event-id": last} if last else {}
    async with looker.http.stream("GET", path, headers=headers) as feed:
        async for line in feed.aiter_lines():
            if line.startswith("id: "):
                out.append([line[4:], ""])
            elif line.startswith("data: ") and out:
                out[-1][1] += line
            elif not line and len(out) == number:
                return out
    raise AssertionError(out)


async def test_a_turn_that_began_first_and_ended_last_is_not_lost(data):
    async with shown(data, "Hello.") as (live, sign_in):
        await live.chat("Hi", user="ada")
        await live.chat("Hi", user="bob")
        looker = await sign_in(SENTINEL_KEY)
        events = await _events(looker, 2)
        assert ["ada" in text for _, text in events] == [True, False]
        x = schema.explains.c
        first = select(func.min(x.id)).scalar_subquery()
        ends_now = update(schema.explains).where(x.id == first).values(created_at=time.time())
        await live.gateway.memory.db.write(lambda conn: conn.execute(ends_now))
        ((_, text),) = await _events(looker, 1, events[-1][0])
        assert "ada" in text


@pytest.mark.parametrize("page", ["/feed", "/connect"])
async def test_the_feed_of_one_tenant_shows_no_turn_of_another(data, page):
    async with shown(data, "Hello.") as (live, sign_in):
        root = await sign_in("sk-root")
        (path,) = links(await root.get(f"{page}?tenant=acme"), "sse-connect")
        await live.chat("Hi", user="bob", **as_key("sk-other"))
        await live.chat("Hi", user="ada")
        ((_, text),) = await _events(root, 1, path=path)
        assert ("ada" in text, "bob" in text) == (True, False)


async def _read_running(lines, wanted):
    """Read a feed until its list of running tools holds a text, or is empty for ""."""
    async with asyncio.timeout(20):
        while True:
            line = await anext(lines)
            if line != "event: running":
                continue
            await anext(lines)
            text = ""
            while (line := await anext(lines)).startswith("data: "):
                text += line.removeprefix("data: ")
            if wanted in text and bool(wanted) == bool(text):
                return text


async def test_a_tool_is_in_the_feed_while_it_runs_and_is_seen_by_its_tenant_alone(data):
    async with ToolServer() as server:
        server.delays["weather"] = 60
        tools = {"weather": server.entry("weather", concurrent=1)}
        keys = [{**key, "tools": ["weather"]} for key in KEYS]
        both = calls(call("weather", {"city": "Oslo"}), call("weather", {"city": "Rome"}))
        async with shown(data, both, "Done.", tools=tools, keys=keys) as (live, sign_in):
            looker = await sign_in(SENTINEL_KEY)
            stranger = await sign_in("sk-other")
            async with looker.http.stream("GET", "/ui/feed/events") as feed:
                lines = feed.aiter_lines()
                assert await _read_running(lines, "") == ""
                asked = asyncio.create_task(live.chat("Hi", user="ada"))
                text = await _read_running(lines, "waits for a slot")
                assert text.count("weather") == 2
                assert text.count(">runs<") == 1
                assert "ada" in text
                assert "Oslo" not in text
                assert "Tools that run" in (await looker.get("/feed")).text
                assert "Tools that run" not in (await stranger.get("/feed")).text
                asked.cancel()
                assert await _read_running(lines, "") == ""


async def test_an_apps_tools_are_counted_apart_from_its_messages(data):
    function = {"name": "f", "description": "tool " * 800, "parameters": {"type": "object"}}
    async with shown(data, "Hi.") as (live, sign_in):
        looker = await sign_in(SENTINEL_KEY)
        sent = await live.chat(
            "Hello", user="ada", tools=[{"type": "function", "function": function}]
        )
        page = unescape(words(await looker.get(f"/request?id={sent.headers['x-memory-explain']}")))
        tools = re.search(r"Your app's tools:? ([\d,]+)", page)
        messages = re.search(r"Your app's messages:? ([\d,]+)", page)
        assert int(tools[1].replace(",", "")) > 700, page[:2000]
        assert int(messages[1].replace(",", "")) < 100
