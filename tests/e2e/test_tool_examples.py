"""The examples of docs/tools.md: every kind of tool runs as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.config.tools import KINDS
from tests.e2e.operator_tools import ADMIN, ToolServer, gateway, granting
from tests.gateway.tools.mcp_server import HttpServer, build
from tests.models import Model

pytest.importorskip("pydantic_monty", reason="the extra `sandbox` is not installed")
PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
HITS = json.dumps({"results": [{"title": "Rain", "url": "https://e.com/1", "content": "Wet."}]})
# What each is called with, and what its result holds.
CALLS = {
    "weather": ({}, "Oslo: rain"),
    "stock": ({"article": "a7"}, "12"),
    "pages": ({"url": "http://127.0.0.1:9000/page"}, "A page"),
    "web": ({"query": "rain"}, "https://e.com/1"),
    "double": ({"number": "21"}, "42"),
    "run_code": ({"code": "sum(range(5))"}, "10"),
    "wiki_add": ({"a": 2, "b": 3}, "5"),
    "file_search": ({"query": "spare key"}, "behind the blue door"),
}


def examples():
    """Yield the configuration of each block that has tools."""
    blocks = map(tomllib.loads, BLOCK.findall(PAGE.read_text()))
    return [block for block in blocks if "tools" in block]


async def test_every_kind_runs_as_the_page_shows_it(data):
    """One gateway with all of them, whose servers stand elsewhere."""
    text = json.dumps(dict(entry for block in examples() for entry in block["tools"].items()))
    server = ToolServer(
        stock=json.dumps({"pieces": 12}), page="A page", search=(200, HITS), Oslo="Oslo: rain"
    )
    async with server, HttpServer(build()) as wiki, Model("Hi.") as up:
        ours, theirs = f"127.0.0.1:{server.port}", urlsplit(wiki.url).netloc
        moved = {"127.0.0.1:9000": ours, "127.0.0.1:9100": theirs, "https://wttr.in": server.root}
        for before, after in moved.items():
            text = text.replace(before, after)
        tools = json.loads(text)
        assert {entry["kind"] for entry in tools.values()} == set(KINDS)
        async with gateway(up, data, granting(tools)) as live:
            file = {"content": b"The spare key hangs behind the blue door.", "headers": ADMIN}
            assert (await live.memory("PUT", "/users/ada/files/a.md", **file)).status_code == 202
            for name, (arguments, expected) in CALLS.items():
                called = json.loads(json.dumps(arguments).replace("127.0.0.1:9000", ours))
                await run_until_it_is_there(live, name, called, expected)


async def run_until_it_is_there(live, name, arguments, expected):
    """Run a tool; a server's list and a file are read in the background."""
    async with asyncio.timeout(30):
        while True:
            body = {"arguments": arguments, "user": "ada"}
            ran = await live.memory("POST", f"/tools/{name}/run", json=body, headers=ADMIN)
            if ran.status_code == 200 and expected in ran.json()["result"]:
                assert ran.json()["status"] == "ok"
                return
            assert name in ("wiki_add", "file_search"), (name, ran.text)
            await asyncio.sleep(0.1)


def test_the_five_lines_are_five():
    first = BLOCK.findall(PAGE.read_text())[0]
    assert len(first.splitlines()) == 5
    assert tomllib.loads(first)["toolbox"] == {"grant": ["weather"]}
