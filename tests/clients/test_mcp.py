"""Programs that speak MCP, against the door (R-M1): frameworks, Claude Code and Codex.

Run by `make test-clients`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.clients.test_clients import HERE, ROOT
from tests.conftest import running
from tests.models import Model
from tests.wire_models import MessagesModel, ResponsesModel, native, use

SECRET = "mg-0123456789abcdef0123"
KEYS = {"keys": [{"name": "app", "key": SECRET, "tenant": "t", "default_user": "ada"}]}


async def run(*command: str, cwd: Path = ROOT, **env: str) -> str:
    """Return what a program prints."""
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env or None,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(100):
        out, err = await child.communicate()
    assert child.returncode == 0, err.decode()[-2000:]
    return out.decode()


async def test_frameworks_use_the_door_over_http_and_stdio(tmp_path):
    python = ROOT / ".clients" / "openai3" / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment openai3: make test-clients sets it up")
    async with Model("Hi.") as up, running(up.url, tmp_path / "data", KEYS, key=SECRET) as live:
        server = [sys.executable, "-m", "gateway", "mcp", "--url", live.root, "--key", SECRET]
        out = await run(str(python), str(HERE / "use_mcp.py"), f"{live.root}/mcp", SECRET, *server)
    for client, facts in json.loads(out.splitlines()[-1]).items():
        assert len(facts["names"]) == 9, client
        assert (
            f"Likes {client.partition(' ')[0].replace('agents', 'openai-agents', 1)}"
            in (facts["text"])
        ), client


def installed(name: str) -> str:
    program = HERE / "node_modules" / ".bin" / name
    if not program.exists() or not shutil.which("node"):
        pytest.skip(f"{name} is not installed: make test-clients sets it up")
    return str(program)


def calls_once(name: str, done: str):
    """Return a model that calls a tool of the program's, where it is offered, and then ends."""

    def answer(seen, wire):
        body = seen.json
        if name not in json.dumps(body.get("tools") or []):
            return "Hi."
        told = json.dumps(body.get("messages") or body.get("input"))
        if done in told:
            return "Noted."
        if "call_once" in told:
            return "It failed."
        arguments = {"label": "human", "content": "Likes tea"}
        spaces = [tool["name"] for tool in body["tools"] if tool.get("type") == "namespace"]
        if not spaces:
            return [use(f"mcp__memory__{name}", arguments)]
        # Codex offers the tools of a server in a namespace.
        [space] = [space for space in spaces if space.startswith("mcp__memory")]
        call = {"type": "function_call", "id": "fc_once", "call_id": "call_once"}
        call |= {"name": name, "namespace": space, "arguments": json.dumps(arguments)}
        return [native({**call, "status": "completed"})]

    return answer


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_inspector_lists_the_tools_and_runs_one(transport, tmp_path):
    inspector = installed("mcp-inspector")
    async with Model("Hi.") as up, running(up.url, tmp_path / "data", KEYS, key=SECRET) as live:
        door = {
            "http": [
                f"{live.root}/mcp",
                *("--transport", "http", "--header", f"Authorization: Bearer {SECRET}"),
            ],
            "stdio": [sys.executable, "-m", "gateway", "mcp", "--url", live.root, "--key", SECRET],
        }[transport]
        listed = await run(inspector, "--cli", *door, "--method", "tools/list")
        assert len(json.loads(listed)["tools"]) == 9
        given = ("label=human", "content=Likes tea")
        arguments = [word for pair in given for word in ("--tool-arg", pair)]
        naming = ("--method", "tools/call", "--tool-name", "core_memory_append")
        called = await run(inspector, "--cli", *door, *naming, *arguments)
        assert json.loads(called)["content"][0]["text"].startswith("Saved: human")
        await check_block(live)


async def check_block(live):
    block = await live.memory("GET", "/users/ada/blocks/human")
    assert block.json()["value"] == "Likes tea"


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_claude_code_connects_and_runs_a_tool(transport, tmp_path):
    claude = installed("claude")
    model = MessagesModel(calls_once("core_memory_append", "Saved: human"))
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    async with model, running(model.url, tmp_path / "data", KEYS, key=SECRET) as live:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": model.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "sk-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "PYTHONPATH": str(ROOT),
            # It asks once its servers are there.
            "MCP_CONNECTION_NONBLOCKING": "0",
        }
        server = [sys.executable, "-m", "gateway", "mcp", "--url", live.root, "--key", SECRET]
        added = {
            "http": [
                *("--transport", "http", "memory", f"{live.root}/mcp"),
                *("--header", f"Authorization: Bearer {SECRET}"),
            ],
            "stdio": ["memory", "--", *server],
        }
        await run(claude, "mcp", "add", *added[transport], cwd=project, **env)
        assert "connected" in (await run(claude, "mcp", "list", cwd=project, **env)).lower()
        allowed = ("--allowedTools", "mcp__memory__core_memory_append")
        told = await run(claude, "-p", *allowed, "--", "I like tea.", cwd=project, **env)
        assert "Noted." in told
        await check_block(live)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_codex_runs_a_tool(transport, tmp_path):
    codex = installed("codex")
    model = ResponsesModel(calls_once("core_memory_append", "Saved: human"))
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    async with model, running(model.url, tmp_path / "data", KEYS, key=SECRET) as live:
        relay = ["-m", "gateway", "mcp", "--url", live.root, "--key", SECRET]
        server = f"""
command = {json.dumps(sys.executable)}
args = {json.dumps(relay)}
env = {{ PYTHONPATH = {json.dumps(str(ROOT))} }}
"""
        if transport == "http":
            server = f'url = "{live.root}/mcp"\nbearer_token_env_var = "MNEMOGATE_KEY"\n'
        config = f"""
model = "m"
model_provider = "plain"
[model_providers.plain]
name = "Plain"
base_url = "{model.url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
supports_websockets = false
[mcp_servers.memory]
required = true
{server}"""
        (home / "config.toml").write_text(config)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(home),
            "OPENAI_API_KEY": "sk-none",
            "MNEMOGATE_KEY": SECRET,
        }
        arguments = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        told = await run(codex, *arguments, "I like tea.", cwd=project, **env)
        assert told.strip().endswith("Noted.")
        await check_block(live)
