"""Anthropic's SDK and Claude Code against a live gateway: what their users see, memory on and off.

Run by `make test-clients`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory.core.tool_definitions import OURS
from tests.clients.keen import PROMPTS
from tests.clients.keen_messages import KeenMessages, remembers
from tests.clients.test_clients import HERE, MODES, Client, played
from tests.conftest import SENTINEL_KEY, Live, running
from tests.wire_models import use

PROGRAMS = {
    "anthropic": Client("anthropic2", "use_anthropic.py", too_long="BadRequestError"),
    "langchain": Client(
        "anthropic2", "use_langchain_anthropic.py", too_long="ContextOverflowError"
    ),
    "vercel": Client(
        "node",
        "use_vercel_anthropic.mjs",
        limited="APICallError",
        too_long="APICallError",
        cut="Object",
    ),
}
OWN = {"server.single_user": False}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_sees_a_plain_server(name, mode, tmp_path):
    client = PROGRAMS[name]
    command = client.command()
    async with KeenMessages() as model, running(model.url, tmp_path / "data", OWN) as live:
        scenes, out = await played([*command, live.url, mode, "ada"])
        full = mode == "full"
        for scene, facts in scenes.items():
            check(client, scene, facts, full=full)
        assert not [tool for tool in OURS if tool in out], "a memory call was seen"
        assert any(map(remembers, model.bodies)) == full
        await check_memory(live, written=full)


def check(client: Client, scene: str, facts: dict[str, Any], full: bool) -> None:
    assert "raised" not in facts, f"{scene}: {facts['raised']}"
    what = scene.partition("_streamed")[0].partition("_in_the")[0]
    expected: dict[str, Any] = {
        "hello": {"text": f"{'One moment. ' * full}Hello, Ada.", "stop": "end_turn"},
        "likes": {"text": "You like tea." if full else "I do not know."},
        "weather": {"text": "3 and 7.", "cities": ["Bergen", "Oslo"]},
        "count": {"exact": True},
    }
    if what in expected:
        assert facts == expected[what], scene
        return
    assert getattr(client, what) in facts.get("classes", ()), (scene, facts)
    if what == "cut":
        assert facts.get("text", "One t").startswith("One t")
    else:
        assert facts["status"] == {"too_long": 400, "limited": 429}[what]


async def check_memory(live: Live, written: bool) -> None:
    block = await live.memory("GET", "/users/ada/blocks/human")
    assert ("Likes tea" in block.json().get("value", "")) == written


class ClaudeCode:
    """Claude Code in a home and a project of its own. mode: the memory's."""

    def __init__(self, live: Live, folder: Path, mode: str) -> None:
        self.program = HERE / "node_modules" / ".bin" / "claude"
        self.project, home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": live.root,
            "ANTHROPIC_API_KEY": SENTINEL_KEY,
            "ANTHROPIC_CUSTOM_HEADERS": f"X-Memory-User: ada\nX-Memory: {mode}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    async def run(self, *options: str) -> str:
        """What it writes for a prompt."""
        if not self.program.exists() or not shutil.which("node"):
            pytest.skip("Claude Code is not installed: make test-clients sets it up")
        child = await asyncio.create_subprocess_exec(
            str(self.program),
            *options,
            cwd=self.project,
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(), 100)
        finally:
            if child.returncode is None:
                child.kill()
        said = (out + err).decode()
        assert not [tool for tool in OURS if tool in said], "a memory call was seen"
        return said


@pytest.mark.parametrize("mode", MODES)
async def test_claude_code_sees_a_plain_server(mode, tmp_path):
    """Told in one session, used in another; continued; its own tools, mixed with ours; a fault."""
    full = mode == "full"
    ones, twos = tmp_path / "ones", tmp_path / "twos"
    ones.write_text("T11\n")
    twos.write_text("T22\n")
    tools = [use("Read", {"file_path": str(path)}) for path in (ones, twos)]
    async with KeenMessages(*tools) as model, running(model.url, tmp_path / "data", OWN) as live:
        code = ClaudeCode(live, tmp_path / "claude", mode)
        hello = await code.run("-p", PROMPTS["hello"])
        assert hello.strip().endswith("Hello, Ada.")
        knows = "You like tea." if full else "I do not know."
        assert knows in await code.run("-p", PROMPTS["likes"])
        assert knows in await code.run("-c", "-p", PROMPTS["likes"])
        read = await code.run("-p", "--allowedTools", "Read", "--", PROMPTS["weather"])
        # It reads both files at once, and sends the results as they come.
        assert any(told in read for told in ("11 and 22.", "22 and 11."))
        assert knows in await code.run("-c", "-p", PROMPTS["likes"])
        assert "One two three." in await code.run("-p", PROMPTS["cut"])
        assert any(map(remembers, model.bodies)) == full
        check_bodies(model.bodies, full)
        await check_memory(live, written=full)


def check_bodies(bodies: list[Any], full: bool) -> None:
    """What the upstream got of it: its own first, no mark of ours, hidden exchanges restored."""
    for body in bodies:
        assert body["system"][0]["text"].startswith("x-anthropic-billing-header")
        assert json.dumps(body).count('"cache_control"') <= 4
    after = [b for b in bodies if "conversation_search" in json.dumps(b["messages"])]
    assert bool(after) == full
