"""What agents cost: the gateway's CPU for a turn, each kind beside the others.

    python -m tests.bench.agent_costs [--turns N] [--rounds N]

- a profile, three shared blocks and a project, over the same turn without: at most 1.15
- a turn through the Letta door, over the same agent's on chat completions: at most 1.3

The gateway is a process of its own on SQLite, and its CPU is read from the system. The kinds take
turns in each round, so that what else the machine does falls on all of them; the figure is the
median of the rounds. Every turn goes on a conversation that the gateway keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from tests.gateway.cli.command import started
from tests.models import Model

KEY = "mg-0123456789abcdef0123"
BARS = (("profile, blocks, project", "plain", 1.15), ("letta", "chat of its agent", 1.3))
SAID = "Tell me more about the plan for the week, and what is left of it."
# Turns of a conversation before the next one begins, so that all kinds are as long.
FRESH = 40

Turn = Callable[[int], Awaitable[httpx.Response]]


def cpu_seconds(pid: int) -> float:
    """The CPU that a process has used, all threads together."""
    folder = Path(f"/proc/{pid}/task")
    return sum(int((t / "schedstat").read_text().split()[0]) for t in folder.iterdir()) / 1e9


class Kinds:
    """The kinds of turns, and what they need."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.agents = http, dict[str, str]()

    async def put(self, path: str, body: dict[str, Any], method: str = "PUT") -> Any:
        answer = await self.http.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def prepare(self) -> None:
        memory = "/memory/v1"
        await self.put(f"{memory}/agents/helper", {"model": "m", "instruction": SAID})
        members: list[dict[str, Any]] = [
            {"user": "ann"},
            {"agent": "helper"},
            {"project": "apollo"},
        ]
        await self.put(f"{memory}/projects/apollo", {"everyone": True, "write": True})
        for number, member in enumerate(members):
            block = {"label": f"board{number}", "value": SAID, "members": [member]}
            await self.put(f"{memory}/shared-blocks", block, "POST")

    async def chat(self, headers: dict[str, str], model: str = "m") -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": SAID}]}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def plain(self, number: int) -> httpx.Response:
        headers = {"x-memory-user": "bob", "x-memory-conversation": f"c{number // FRESH}"}
        return await self.chat(headers)

    async def shared(self, number: int) -> httpx.Response:
        headers = {"x-memory-user": "ann", "x-memory-conversation": f"c{number // FRESH}"}
        return await self.chat({**headers, "x-memory-project": "apollo"}, "agent:helper")

    async def agent_of(self, kind: str, number: int) -> str:
        name = f"{kind}{number // FRESH}"
        if name not in self.agents:
            blocks = [{"label": label, "value": SAID} for label in ("human", "persona")]
            sent = {"model": "m", "memory_blocks": blocks}
            self.agents[name] = (await self.put("/letta/v1/agents", sent, "POST"))["id"]
        return self.agents[name]

    async def of_agent(self, number: int) -> httpx.Response:
        ident = await self.agent_of("chat", number)
        return await self.chat({"x-memory-conversation": "one"}, f"agent:{ident}")

    async def letta(self, number: int) -> httpx.Response:
        ident = await self.agent_of("letta", number)
        body = {"messages": [{"role": "user", "content": SAID}]}
        return await self.http.post(f"/letta/v1/agents/{ident}/messages", json=body)

    def all(self) -> dict[str, Turn]:
        return {
            "plain": self.plain,
            "profile, blocks, project": self.shared,
            "chat of its agent": self.of_agent,
            "letta": self.letta,
        }


async def measure(url: str, pid: int, turns: int, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of CPU a turn, of each kind and round."""
    found: dict[str, list[float]] = {}
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        kinds = Kinds(http)
        await kinds.prepare()
        numbers = dict.fromkeys(kinds.all(), 0)
        # The first one warms up.
        for number in range(rounds + 1):
            for name, turn in kinds.all().items():
                # What a conversation begins with is not counted.
                await turn(numbers[name])
                before = cpu_seconds(pid)
                for _ in range(turns):
                    answer = await turn(numbers[name])
                    assert answer.status_code == 200, (name, answer.text)
                    numbers[name] += 1
                each = (cpu_seconds(pid) - before) / turns * 1000
                if number:
                    found.setdefault(name, []).append(each)
    return found


async def play(turns: int, rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with Model("So be it, and the rest of it too.") as model:
            config = Path(folder, "gateway.toml")
            config.write_text(f'[[keys]]\nname = "a"\nkey = "{KEY}"\ntenant = "t"\n')
            serve = ("serve", "--port", "0", "--config", str(config), "--upstream", model.url)
            with started(Path(folder, "data"), *serve) as gateway:
                url = await asyncio.to_thread(lambda: gateway.url)
                return await measure(url, gateway.popen.pid, turns, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    figures = asyncio.run(play(args.turns, args.rounds))
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores")
    middle = {name: statistics.median(each) for name, each in figures.items()}
    for name, each in figures.items():
        print(f"{name:28} {middle[name]:6.2f} ms  ({min(each):.2f} to {max(each):.2f})")
    missed = 0
    for over, under, bar in BARS:
        ratio = middle[over] / middle[under]
        missed += ratio > bar
        print(f"{over} over {under}: {ratio:.2f}, at most {bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
