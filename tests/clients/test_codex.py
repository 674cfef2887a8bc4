"""Codex itself against a live gateway and a strict server: what its user sees, memory on and off.

Run by `make test-clients`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from memory.core.tool_definitions import OURS
from tests.clients.keen_responses import KeenResponses
from tests.clients.test_clients import HERE, MODES
from tests.conftest import SENTINEL_KEY, running

CONFIG = """
model = "m"
model_provider = "mnemogate"
[model_providers.mnemogate]
name = "Mnemogate"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
supports_websockets = false
http_headers = {{ "X-Memory-User" = "ada", "X-Memory" = "{mode}" }}
"""
OWN = {"server.single_user": False}


class Codex:
    """Codex in a home and a project of its own."""

    def __init__(self, url: str, folder: Path, mode: str) -> None:
        self.program = HERE / "node_modules" / ".bin" / "codex"
        if not self.program.exists():
            pytest.skip("Codex is not installed: make test-clients sets it up, where npm is")
        self.project, home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(url=url, mode=mode))
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(home),
            "OPENAI_API_KEY": SENTINEL_KEY,
        }

    async def ask(self, *arguments: str) -> str:
        """Return what `codex exec` prints."""
        child = await asyncio.create_subprocess_exec(
            *(str(self.program), "exec", "--skip-git-repo-check", *arguments),
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
        assert child.returncode == 0, err.decode()
        assert not [tool for tool in OURS if tool in (out + err).decode()], "a memory call was seen"
        return out.decode().strip()


@pytest.mark.parametrize("mode", MODES)
async def test_codex_sees_a_plain_server(mode, tmp_path):
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        codex = Codex(live.url, tmp_path, mode)
        told = await codex.ask("I like tea.")
        assert told.endswith("Hello, Ada.")
        knows = "You like tea." if mode == "full" else "I do not know."
        assert await codex.ask("What do I like?") == knows
        assert await codex.ask("resume", "--last", "What do I like now?") == knows
        block = await live.memory("GET", "/users/ada/blocks/human")
        assert ("Likes tea" in block.json().get("value", "")) == (mode == "full")
        bodies = [b for b in model.bodies if "input" in b]
        assert len({str(b["input"][0]["content"][0]) for b in bodies}) == 1  # its prompt is shared
