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
from tests.wire_models import use

CONFIG = """
model = "m"
model_provider = "mnemogate"
[model_providers.mnemogate]
name = "Mnemogate"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
supports_websockets = false
stream_max_retries = 0
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
        code, out, err = await self.run(*arguments)
        assert code == 0, err
        return out

    async def run(self, *arguments: str) -> tuple[int | None, str, str]:
        """Return how `codex exec` ends, and what it prints."""
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
        assert not [tool for tool in OURS if tool in (out + err).decode()], "a memory call was seen"
        return child.returncode, out.decode().strip(), err.decode()


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
        # Its prompt is shared.
        assert len({str(b["input"][0]["content"][0]) for b in bodies}) == 1


RAIN = use("exec_command", {"cmd": "echo it rains"})


@pytest.mark.parametrize("mode", MODES)
async def test_codex_runs_its_own_tools_beside_ours(mode, tmp_path):
    async with KeenResponses(RAIN) as model, running(model.url, tmp_path / "data", OWN) as live:
        codex = Codex(live.url, tmp_path, mode)
        said = await codex.ask("-s", "danger-full-access", "What is the weather in Oslo?")
        assert said == "Rain."
        kinds = [i["type"] for i in model.bodies[-1]["input"] if i["type"].startswith("function")]
        both = 2 if mode == "full" else 1
        assert kinds == ["function_call"] * both + ["function_call_output"] * both
        assert "it rains" in str(model.bodies[-1]["input"])


@pytest.mark.parametrize("mode", MODES)
async def test_codex_goes_on_after_compacting(mode, tmp_path):
    """Its compaction has no memory and leaves none; what was learnt is known after it."""
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        codex = Codex(live.url, tmp_path, mode)
        await codex.ask("I like tea.")
        limit = ("-c", "model_auto_compact_token_limit=100")
        asked = len(model.bodies)
        said = await codex.ask(*limit, "resume", "--last", "What do I like now?")
        assert said == ("You like tea." if mode == "full" else "I do not know.")
        compaction, after = model.bodies[asked:]
        assert not [t for t in OURS if t in str(compaction)]
        assert "Another language model started to solve this problem" in str(after["input"])
        if mode == "off":
            return
        (line,) = (await live.memory("GET", "/users/ada/conversations")).json()["data"]
        path = f"/users/ada/conversations/{line['id']}/messages"
        rows = (await live.memory("GET", path)).json()["data"]
        told = [r["content"] for r in rows if r["role"] == "user"]
        assert sum("I like tea." in str(t) for t in told) == 1
        assert "What do I like now?" in str(told)
        assert "Another language model" not in str(told)


@pytest.mark.parametrize("mode", MODES)
async def test_codex_tells_of_a_stream_that_breaks_off(mode, tmp_path):
    async with KeenResponses() as model, running(model.url, tmp_path / "data", OWN) as live:
        codex = Codex(live.url, tmp_path, mode)
        code, _, told = await codex.run("Break off, please.")
        assert code == 1
        assert "stream" in told
