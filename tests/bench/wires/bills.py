"""The input bill of a session of 30 tool steps, as Codex and Claude Code make them, with memory
over without: from the very bodies that an upstream received.

The price model of `tests.bench.layout`: what is identical with the previous request's prefix costs
a tenth. A request is read in the order in which vendors cache it: tools, instructions, input. The
model says something to its memory once a turn.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from memory.core.tool_definitions import OURS
from tests.bench.layout import LINE, bill
from tests.conftest import running
from tests.wire_models import MessagesModel, ResponsesModel, WireModel, say, think, use

STEPS = 30
FACT = {"label": "human", "content": "Works on the parser of the project"}
Body = dict[str, Any]


def filler(size: int) -> str:
    return (LINE * (size // len(LINE) + 1))[:size]


def tools(schema: str, count: int, size: int) -> list[Body]:
    parameters = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    kind = {"type": "function"} if schema == "parameters" else {}
    each = size // count - 100
    return [
        {**kind, "name": f"tool_{i}", "description": filler(each), schema: parameters}
        for i in range(count)
    ]


def answers(turns: int) -> list[Any]:
    """What the model says: each turn begins with a call to the memory, where that is offered."""
    out: list[Any] = []
    for _ in range(turns):
        out.append([think(), use("core_memory_append", FACT)])
        out += [[think(), use("tool_0", {"cmd": f"step {i}"})] for i in range(STEPS // turns)]
        out.append([say(filler(400))])
    return out


class Session:
    """What both programs share: turns of tool steps until the model answers."""

    path = ""

    def __init__(self, live: Any, headers: dict[str, str]) -> None:
        self._live, self._headers = live, headers

    async def play(self, turns: int) -> None:
        for turn in range(turns):
            self.ask(f"Task {turn}: {filler(300)}")
            while self.take(await self._post()):
                pass

    async def _post(self) -> Body:
        http = await self._live.http.post(
            f"{self._live.url}/{self.path}", json=self.body(), headers=self._headers
        )
        assert http.status_code == 200, http.text
        found: Body = http.json()
        return found

    def ask(self, words: str) -> None:
        raise NotImplementedError

    def body(self) -> Body:
        raise NotImplementedError

    def take(self, reply: Body) -> bool:
        """Take in an answer; True where a tool's result follows it."""
        raise NotImplementedError


class Codex(Session):
    """21 kB of prompt as the first developer message, 9 kB of tools, nothing stored."""

    path = "responses"

    def __init__(self, live: Any, headers: dict[str, str]) -> None:
        super().__init__(live, {**headers, "thread-id": "t-1"})
        lead = [("developer", 21_000), ("developer", 3_000), ("user", 500)]
        self._items = [{"role": role, "content": [part(filler(size))]} for role, size in lead]

    def ask(self, words: str) -> None:
        self._items.append({"role": "user", "content": [part(words)]})

    def body(self) -> Body:
        return {
            "model": "m",
            "input": self._items,
            "tools": tools("parameters", 10, 9_000),
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }

    def take(self, reply: Body) -> bool:
        self._items += reply["output"]
        calls = [i for i in reply["output"] if i["type"] == "function_call"]
        self._items += [
            {"type": "function_call_output", "call_id": c["call_id"], "output": filler(1_500)}
            for c in calls
        ]
        return bool(calls)


class ClaudeCode(Session):
    """6 kB of system text in two marked blocks, 64 kB of tools, the third mark moves."""

    path = "messages"

    def __init__(self, live: Any, headers: dict[str, str]) -> None:
        super().__init__(live, {**headers, "x-claude-code-session-id": "s-1"})
        self._messages: list[Body] = []

    def ask(self, words: str) -> None:
        self._messages.append({"role": "user", "content": [{"type": "text", "text": words}]})

    def body(self) -> Body:
        marked: Body = {"cache_control": {"type": "ephemeral"}}
        system = [{"type": "text", "text": "x-anthropic-billing-header: v=1"}]
        system += [{"type": "text", "text": filler(n), **marked} for n in (60, 14_000)]
        newest = self._messages[-1]
        blocks = newest["content"]
        last = {**newest, "content": [*blocks[:-1], {**blocks[-1], **marked}]}
        return {
            "model": "m",
            "max_tokens": 32_000,
            "system": system,
            "messages": [*self._messages[:-1], last],
            "tools": tools("input_schema", 24, 64_000),
            "thinking": {"type": "adaptive"},
        }

    def take(self, reply: Body) -> bool:
        self._messages.append({"role": "assistant", "content": reply["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": b["id"], "content": filler(1_500)}
            for b in reply["content"]
            if b["type"] == "tool_use"
        ]
        self._messages += [{"role": "user", "content": results}] if results else []
        return bool(results)


def part(text: str) -> Body:
    return {"type": "input_text", "text": text}


def flat(body: Body) -> str:
    """A request in the order in which it is cached, marks aside."""
    parts = [body.get("tools"), body.get("instructions") or body.get("system")]
    parts.append(body.get("input") or body.get("messages"))
    return json.dumps(unmarked(parts))


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [unmarked(v) for v in value] if isinstance(value, list) else value


def without_ours(seen: Any, script: list[Any]) -> Any:
    """The next answer; without memory tools, the next that needs none."""
    offered = {t["name"] for t in seen.json.get("tools") or ()}
    while any(p.name in OURS - offered for p in script[0]):
        script.pop(0)
    return script.pop(0)


async def bodies(program: type[Session], turns: int, mode: str) -> list[Body]:
    script = answers(turns)
    kind: type[WireModel] = ResponsesModel if program is Codex else MessagesModel
    with tempfile.TemporaryDirectory() as data:
        async with (
            kind(lambda seen, wire: without_ours(seen, script)) as up,
            running(up.url, Path(data)) as live,
        ):
            await program(live, {"x-memory": mode, "x-memory-user": "ada"}).play(turns)
            return up.bodies


def report() -> tuple[str, dict[str, float]]:
    """The multipliers, as text and by name."""
    figures = {}
    for program, turns in ((p, t) for p in (Codex, ClaudeCode) for t in (1, 3)):
        with_, without = (
            bill([flat(b) for b in asyncio.run(bodies(program, turns, mode))])
            for mode in ("full", "off")
        )
        name = f"{program.__name__}, {turns} x {STEPS // turns} steps"
        figures[name] = with_.total / without.total
    lines = [f"input bill with memory over without, {k}: {v:.3f}" for k, v in figures.items()]
    return "\n".join(lines), figures


if __name__ == "__main__":
    print(report()[0])
