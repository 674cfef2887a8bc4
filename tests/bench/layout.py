"""What memory costs in input tokens: chats and agent loops played through the gateway, from the
very bodies an upstream received.

The price model of a provider with a prefix cache: what is identical with the previous request's
prefix, from 1,024 tokens on and in steps of 128, costs a tenth. The multiplier is the bill with
memory over the bill without: of the layout alone, hidden rounds left out, and of everything. The
model edits a block every fifth turn. `python -m tests.bench.layout` prints both, and where the
tokens go.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
import msgspec

from gateway.app import create_app
from gateway.config.loader import load
from gateway.upstream.base import UpstreamRequest, UpstreamResponse
from gateway.upstream.scripted import ScriptedUpstream, completion
from memory.context.tokens import estimate
from memory.core.tool_definitions import tools_to_offer

LINE = "a sentence of ordinary length about nothing in particular, as people write them "
SYSTEM = {"role": "system", "content": "You are a careful assistant. " * 60}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks things up. " * 10,
        "parameters": {"type": "object", "properties": {}},
    },
}
Body = dict[str, Any]


@dataclass(slots=True)
class Bill:
    """What a sequence of requests costs, in tokens; four characters are one here, on both sides
    alike.

    first: of the first request. tails: paid in full since. cached: read at a tenth. changed: of the
    requests before, not found again in the next one, its end aside: what a layout that kept every
    prefix would have read from the cache.
    """

    first: int = 0
    tails: int = 0
    cached: int = 0
    changed: int = 0

    @property
    def total(self) -> float:
        return self.first + self.tails + self.cached * 0.1


def bill(bodies: list[str]) -> Bill:
    out = Bill(first=len(bodies[0]) // 4)
    for before, body in pairwise(bodies):
        same = next(
            (i for i, (a, b) in enumerate(zip(before, body, strict=False)) if a != b),
            min(len(before), len(body)),
        )
        cached = same // 4 // 128 * 128 if same // 4 >= 1024 else 0
        out.cached += cached
        out.tails += len(body) // 4 - cached
        out.changed += (len(before) - len("]") - same) // 4
    return out


def bills() -> dict[str, dict[str, Bill]]:
    """By kind of conversation: the bill without memory, of the layout alone, and of everything."""
    out = {}
    for name, agent in (("40-turn chat", False), ("6-step agent loops", True)):
        ours = asyncio.run(_played(agent, "full"))
        out[name] = {
            k: bill([flat(b) for b in bodies])
            for k, bodies in (
                ("memory off", asyncio.run(_played(agent, "off"))),
                ("the layout alone", [b for b in ours if not _hidden(b)]),
                ("with hidden rounds", ours),
            )
        }
    return out


def multipliers(found: dict[str, dict[str, Bill]]) -> dict[str, float]:
    """The bill with memory over the bill without, and the tokens of our tool schemas."""
    out = {
        f"{name}, {k}": b.total / by["memory off"].total
        for name, by in found.items()
        for k, b in by.items()
        if k != "memory off"
    }
    return out | {
        "tokens of our tool schemas": float(
            estimate(msgspec.json.encode(tools_to_offer(None, write=True)).decode())
        )
    }


def parts(found: dict[str, dict[str, Bill]]) -> str:
    """Where the tokens go, as a table."""
    rows = [
        f"{name}, {k}: first request {b.first:,}, tails {b.tails:,}, read from the cache "
        f"{b.cached:,}, prefix changed {b.changed:,}"
        for name, by in found.items()
        for k, b in by.items()
    ]
    return "\n".join(f"input tokens, {row}" for row in rows)


def flat(body: Body) -> str:
    """The request in the order in which providers read it: tools, then messages."""
    return (
        msgspec.json.encode(body.get("tools") or []) + msgspec.json.encode(body["messages"])
    ).decode()


def _hidden(body: Body) -> bool:
    """Whether it is a round after a memory call, which an app without memory would not have
    made.
    """
    return str(body["messages"][-1].get("tool_call_id")).startswith("memory")


def _answer(request: UpstreamRequest) -> UpstreamResponse:
    """A model that edits its memory where the user's text asks for it, and takes six steps where
    there is a tool to take them with.
    """
    body: Body = json.loads(request.body or b"{}")
    messages = body["messages"]
    newest = max(i for i, m in enumerate(messages) if m["role"] == "user")
    since = messages[newest + 1 :]
    tools = {t["function"]["name"] for t in body.get("tools") or []}
    if "core_memory_append" in tools and "EDIT" in messages[newest]["content"] and not since:
        return completion(
            _calls(
                f"memory{newest}",
                "core_memory_append",
                {"label": "human", "content": f"Fact {newest}: {LINE}"},
            ),
            "tool_calls",
        )(request)
    steps = sum(m["role"] == "tool" and not m["tool_call_id"].startswith("memory") for m in since)
    if "look" in tools and steps < 6:
        return completion(_calls(f"look{newest}x{steps}", "look", {"n": steps}), "tool_calls")(
            request
        )
    return completion({"content": f"answer {len(messages) % 7}: " + LINE * 6})(request)


def _calls(ident: str, name: str, arguments: Body) -> Body:
    return {
        "content": None,
        "tool_calls": [
            {
                "id": ident,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
        ],
    }


async def _played(agent: bool, mode: str) -> list[Body]:
    """The bodies that the upstream received."""
    history: list[Body] = [SYSTEM]
    async with _gateway() as (client, upstream):
        for turn in range(8 if agent else 40):
            history.append(
                {
                    "role": "user",
                    "content": f"{turn}{' EDIT' if turn % 5 == 4 else ''}: " + LINE * 4,
                }
            )
            while history[-1]["role"] != "assistant":
                body = {
                    "model": "m",
                    "user": "ada",
                    "messages": history,
                    **({"tools": [LOOK]} if agent else {}),
                }
                answer = (
                    await client.post("/v1/chat/completions", json=body, headers={"x-memory": mode})
                ).json()["choices"][0]["message"]
                history.append({k: v for k, v in answer.items() if v is not None})
                history += [
                    {"role": "tool", "tool_call_id": c["id"], "content": LINE * 3}
                    for c in answer.get("tool_calls") or []
                ]
        return upstream.bodies


@asynccontextmanager
async def _gateway() -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedUpstream]]:
    with tempfile.TemporaryDirectory() as folder:
        upstream = ScriptedUpstream([_answer])
        app = create_app(
            load(
                None,
                {},
                {
                    "storage.data": folder,
                    "storage.vectors": "none",
                    "memory.read_deadline_ms": 5000,
                },
            ),
            upstreams={"openai": upstream},
        )
        events: asyncio.Queue[Body] = asyncio.Queue()
        started = asyncio.Event()

        async def told(message: Body) -> None:
            started.set()

        events.put_nowait({"type": "lifespan.startup"})
        life = asyncio.create_task(
            app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, events.get, told)
        )
        await started.wait()
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1",
            headers={"authorization": "Bearer k"},
            timeout=60,
        ) as client:
            yield client, upstream
        events.put_nowait({"type": "lifespan.shutdown"})
        await life


if __name__ == "__main__":
    played = bills()
    print(parts(played))
    print("\n".join(f"input-cost multiplier, {k}: {v:.3f}" for k, v in multipliers(played).items()))
