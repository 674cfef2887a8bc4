"""What the layout of memory costs in input tokens: chats and agent loops replayed through the real session, bodies recorded.

The price model of a provider with a prefix cache: what is identical with the previous request's prefix, from 1,024 tokens on and in
steps of 128, costs a tenth. The multiplier is the bill with memory over the bill without, hidden rounds left out.
"""
from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from gateway.wire.place import Placement, placed
from memory.ask import Ask, Policy
from memory.blocks import Block
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.engine import Database
from memory.tokens import estimate
from memory.tools import Call

LINE = "a sentence of ordinary length about nothing in particular, as people write them "


def bill(bodies: list[str]) -> float:
    """Input cost of a sequence of requests, in tokens at full price. Four characters are a token here, on both sides alike."""
    total, before = 0.0, ""
    for body in bodies:
        same = next((i for i, (a, b) in enumerate(zip(before, body, strict=False)) if a != b), min(len(before), len(body))) // 4
        cached = same // 128 * 128 if same >= 1024 else 0
        total += len(body) // 4 - cached * 0.9
        before = body
    return total


def _flat(body: dict[str, Any]) -> str:
    """The request in the order in which providers read it: tools, then messages."""
    return json.dumps(body.get("tools") or []) + json.dumps(body["messages"])


async def _replay(agent: bool) -> tuple[list[str], list[str]]:
    scope = Scope("t", "ada", "default", b"s" * 32)
    with_memory: list[str] = []
    without: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Database(f"sqlite+aiosqlite:///{folder}/m.db"), Policy({"human": Block("human", "Name: Ada", "About the user"), "persona": Block("persona", "Kind.", "Manner")}, read_deadline=5), b"s" * 32, Path(folder))
        await memory.open()
        history: list[dict[str, Any]] = [{"role": "system", "content": "You are a careful assistant. " * 60}]
        tools = [{"type": "function", "function": {"name": "look", "description": "Looks things up. " * 10, "parameters": {"type": "object", "properties": {}}}}] if agent else None
        for turn in range(40 if not agent else 8):
            history.append({"role": "user", "content": f"{turn}: " + LINE * 4})
            for step in range(7 if agent else 1):
                session = await memory.begin(Ask(scope, history, "m", f"r{turn}.{step}", client_tools=tools))
                await session.open()
                body: dict[str, Any] = {"messages": history, **({"tools": tools} if tools else {})}
                without.append(_flat(body))
                with_memory.append(_flat(placed(body, Placement(session.core, session.notes, session.splices, session.drop, session.swap, "", session.offered))))
                if turn % 5 == 4 and step == 0:
                    await session.run([Call("c", "core_memory_append", json.dumps({"label": "human", "content": f"Fact {turn}: {LINE}"}))], {"choices": []})
                if agent and step < 6:
                    answer = {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{turn}.{step}", "type": "function", "function": {"name": "look", "arguments": f'{{"n":{step}}}'}}]}
                    await session.finish([answer])
                    history += [answer, {"role": "tool", "tool_call_id": f"c{turn}.{step}", "content": f"{step} " + LINE * 3}]
                else:
                    answer = {"role": "assistant", "content": f"answer {turn}: " + LINE * 6}
                    await session.finish([answer])
                    history.append(answer)
        await memory.close()
    return with_memory, without


def multipliers() -> dict[str, float]:
    """By kind of conversation: the bill with memory over the bill without."""
    out = {}
    for name, agent in (("40-turn chat, an edit every fifth turn", False), ("6-step agent loops, an edit every fifth turn", True)):
        ours, plain = asyncio.run(_replay(agent))
        out[name] = bill(ours) / bill(plain)
    out["tokens of our tool schemas"] = float(estimate(json.dumps(_tools())))
    return out


def _tools() -> list[dict[str, Any]]:
    from memory.tools import offered

    return offered(None, write=True)
