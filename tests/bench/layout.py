"""What memory costs in input tokens: chats and agent loops played through the gateway, from the very bodies an upstream received.

The price model of a provider with a prefix cache: what is identical with the previous request's prefix, from 1,024 tokens on and in
steps of 128, costs a tenth. The multiplier is the bill with memory over the bill without: of the layout alone, hidden rounds left
out, and of everything. The model edits a block every fifth turn.
"""
from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from gateway.app import create_app
from gateway.loading import load
from gateway.upstream.base import Incoming, Outgoing
from gateway.upstream.scripted import ScriptedUpstream, completion
from memory.tokens import estimate
from memory.tools import offered

LINE = "a sentence of ordinary length about nothing in particular, as people write them "
SYSTEM = {"role": "system", "content": "You are a careful assistant. " * 60}
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks things up. " * 10, "parameters": {"type": "object", "properties": {}}}}
Body = dict[str, Any]


def bill(bodies: list[str]) -> float:
    """Input cost of a sequence of requests, in tokens at full price. Four characters are a token here, on both sides alike."""
    total, before = 0.0, ""
    for body in bodies:
        same = next((i for i, (a, b) in enumerate(zip(before, body, strict=False)) if a != b), min(len(before), len(body))) // 4
        cached = same // 128 * 128 if same >= 1024 else 0
        total += len(body) // 4 - cached * 0.9
        before = body
    return total


def multipliers() -> dict[str, float]:
    """By kind of conversation: the bill with memory over the bill without."""
    out = {}
    for name, agent in (("40-turn chat", False), ("6-step agent loops", True)):
        plain = bill([flat(b) for b in asyncio.run(_played(agent, "off"))])
        ours = asyncio.run(_played(agent, "full"))
        out[f"{name}, the layout alone"] = bill([flat(b) for b in ours if not _hidden(b)]) / plain
        out[f"{name}, with hidden rounds"] = bill([flat(b) for b in ours]) / plain
    out["tokens of our tool schemas"] = float(estimate(msgspec.json.encode(offered(None, write=True)).decode()))
    return out


def flat(body: Body) -> str:
    """The request in the order in which providers read it: tools, then messages."""
    return (msgspec.json.encode(body.get("tools") or []) + msgspec.json.encode(body["messages"])).decode()


def _hidden(body: Body) -> bool:
    """Whether it is a round after a memory call, which an app without memory would not have made."""
    return str(body["messages"][-1].get("tool_call_id")).startswith("memory")


def _answer(request: Outgoing) -> Incoming:
    """A model that edits its memory where the user's text asks for it, and takes six steps where there is a tool to take them with."""
    body: Body = json.loads(request.body or b"{}")
    messages = body["messages"]
    newest = max(i for i, m in enumerate(messages) if m["role"] == "user")
    since = messages[newest + 1 :]
    tools = {t["function"]["name"] for t in body.get("tools") or []}
    if "core_memory_append" in tools and "EDIT" in messages[newest]["content"] and not since:
        return completion(_calls(f"memory{newest}", "core_memory_append", {"label": "human", "content": f"Fact {newest}: {LINE}"}), "tool_calls")(request)
    steps = sum(m["role"] == "tool" and not m["tool_call_id"].startswith("memory") for m in since)
    if "look" in tools and steps < 6:
        return completion(_calls(f"look{newest}x{steps}", "look", {"n": steps}), "tool_calls")(request)
    return completion({"content": f"answer {len(messages) % 7}: " + LINE * 6})(request)


def _calls(ident: str, name: str, arguments: Body) -> Body:
    return {"content": None, "tool_calls": [{"id": ident, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}


async def _played(agent: bool, mode: str) -> list[Body]:
    """The bodies that the upstream received."""
    history: list[Body] = [SYSTEM]
    async with _gateway() as (client, upstream):
        for turn in range(8 if agent else 40):
            history.append({"role": "user", "content": f"{turn}{' EDIT' if turn % 5 == 4 else ''}: " + LINE * 4})
            while history[-1]["role"] != "assistant":
                body = {"model": "m", "user": "ada", "messages": history, **({"tools": [LOOK]} if agent else {})}
                answer = (await client.post("/v1/chat/completions", json=body, headers={"x-memory": mode})).json()["choices"][0]["message"]
                history.append({k: v for k, v in answer.items() if v is not None})
                history += [{"role": "tool", "tool_call_id": c["id"], "content": LINE * 3} for c in answer.get("tool_calls") or []]
        return upstream.bodies


@asynccontextmanager
async def _gateway() -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedUpstream]]:
    with tempfile.TemporaryDirectory() as folder:
        upstream = ScriptedUpstream([_answer])
        app = create_app(load(None, {}, {"storage.data": folder, "storage.vectors": "none", "memory.read_deadline_ms": 5000}), upstreams={"openai": upstream})
        events: asyncio.Queue[Body] = asyncio.Queue()
        started = asyncio.Event()

        async def told(message: Body) -> None:
            started.set()

        events.put_nowait({"type": "lifespan.startup"})
        life = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, events.get, told))
        await started.wait()
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers={"authorization": "Bearer k"}, timeout=60) as client:
            yield client, upstream
        events.put_nowait({"type": "lifespan.shutdown"})
        await life
