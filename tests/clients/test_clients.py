"""The SDKs and frameworks people use, each in its own environment, against a live gateway: what
their users see, memory on and off.

Run by `make test-clients`. A program of this folder plays its scenes against `keen`, a model that
uses its memory at every turn, and tells what it saw; the facts must be those of a plain server,
whatever went on between.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory.core.tool_definitions import OURS
from tests.clients.keen import ADA, PROMPTS, remembers, reply
from tests.conftest import SENTINEL_KEY, Live, running
from tests.models import Model

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MODES = ("full", "off")


@dataclass(frozen=True)
class Client:
    """program: run in `place`. The rest: the classes that its users catch."""

    place: str
    program: str
    limited: str = "RateLimitError"
    too_long: str = "BadRequestError"
    cut: str = "APIError"
    lacks: tuple[str, ...] = ()

    def command(self) -> list[str]:
        if self.place == "node":
            node = shutil.which("node")
            if not node or not (HERE / "node_modules").exists():
                pytest.skip(
                    "node and npm are not installed (Debian, Ubuntu: apt-get install nodejs "
                    "npm; then make test-clients)"
                )
            return [node, str(HERE / self.program)]
        python = ROOT / ".clients" / self.place / "bin" / "python"
        if not python.exists():
            pytest.skip(f"no environment {self.place}: make test-clients sets it up")
        return [str(python), str(HERE / self.program)]


CLIENTS = {
    "openai 3": Client("openai3", "use_openai.py"),
    "openai 2": Client("openai2", "use_openai.py"),
    "openai node": Client("node", "use_openai.mjs"),
    "vercel": Client(
        "node", "use_vercel.mjs", limited="APICallError", too_long="APICallError", cut="Object"
    ),
    "langchain": Client("openai3", "use_langchain.py", limited="OpenAIRateLimitError"),
    "pydantic-ai": Client(
        "openai3",
        "use_pydantic_ai.py",
        "ModelRateLimitError",
        "ModelContextWindowExceededError",
        "ModelAPIError",
    ),
    "agents": Client("openai3", "use_agents.py"),
    "instructor": Client("openai2", "use_instructor.py", lacks=("likes", "weather")),
    "llama-index": Client("openai2", "use_llama_index.py"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_sees_a_plain_server(name, mode, tmp_path):
    client = CLIENTS[name]
    command = client.command()
    # Its key is a tenant of its own, so that memory can be looked at with the same key.
    async with (
        Model(reply) as model,
        running(model.url, tmp_path / "data", {"server.single_user": False}) as live,
    ):
        scenes, out = await played([*command, live.url, mode, "ada"])
        bodies = list(model.bodies)
        for scene, facts in scenes.items():
            check(client, scene, facts, full=mode == "full")
        assert {kind(s) for s in scenes} == set(PROMPTS) - set(client.lacks)
        assert not [tool for tool in OURS if tool in out], "a memory call was seen"
        assert any(map(remembers, bodies)) == (mode == "full")
        check_splices(bodies, wanted=mode == "full" and "weather" not in client.lacks)
        await check_memory(live, written=mode == "full")


async def played(command: list[str]) -> tuple[dict[str, Any], str]:
    """The facts by scene, and all that the program wrote."""
    # Nothing was compiled when the environments were set up: each module is, once, when it is first
    # imported.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    child = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(), 100)
    finally:
        if child.returncode is None:
            child.kill()
    said = out.decode() + err.decode()
    assert child.returncode == 0, said
    found = [json.loads(line) for line in out.decode().splitlines()]
    return {facts.pop("scene"): facts for facts in found}, said


def kind(scene: str) -> str:
    """`weather_streamed` is weather, `too_long` is itself."""
    return next(name for name in PROMPTS if scene == name or scene.startswith(f"{name}_"))


def check(client: Client, scene: str, facts: dict[str, Any], full: bool) -> None:
    assert "raised" not in facts, f"{scene}: {facts['raised']}"
    expected = {
        # Two rounds are one answer: both their texts, and the sum of what they cost.
        "hello": {"text": "One moment. Hello, Ada.", "tokens": 220}
        if full
        else {"text": "Hello, Ada.", "tokens": 110},
        "likes": {"text": "You like tea." if full else "I do not know."},
        "weather": {"text": "Oslo 3, Bergen 7.", "cities": ["Bergen", "Oslo"]},
        "person": ADA,
    }
    what = kind(scene)
    if what in expected:
        assert facts == expected[what], scene
        return
    assert getattr(client, what) in facts.get("classes", ()), (scene, facts)
    if what == "cut":
        assert facts.get("text", "One two ") == "One two "
    assert (
        facts["code"]
        == {
            "cut": "stream_incomplete",
            "too_long": "context_length_exceeded",
            "limited": "rate_limit_exceeded",
        }[what]
    )
    if what != "cut":
        assert facts["status"] == {"too_long": 400, "limited": 429}[what]


def check_splices(bodies: list[Any], wanted: bool) -> None:
    """The history that a framework resends in its own words was recognised: the hidden call stands
    in it again, between the app's own.
    """
    resent = [
        b["messages"]
        for b in bodies
        if any(m.get("tool_call_id") == "call_oslo" for m in b["messages"])
    ]
    assert resent or not wanted
    for messages in resent:
        ids = next([c["id"] for c in m["tool_calls"]] for m in messages if m.get("tool_calls"))
        assert ("call_passage" in ids) == wanted, ids


async def check_memory(live: Live, written: bool) -> None:
    """What was kept stands in the next conversation, and in the management API; with memory off
    there is nothing.
    """
    answer = await live.chat(PROMPTS["likes"], {"X-Memory-User": "ada"})
    assert answer.json()["choices"][0]["message"]["content"] == (
        "You like tea." if written else "I do not know."
    )
    block = await live.memory("GET", "/users/ada/blocks/human")
    assert block.status_code == 200, block.text
    assert ("Likes tea" in block.json()["value"]) == written


def test_the_programs_use_the_key_of_the_tests():
    for name in ("scenes.py", "scenes.mjs"):
        assert f'"{SENTINEL_KEY}"' in (HERE / name).read_text(), name
