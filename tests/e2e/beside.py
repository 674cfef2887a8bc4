"""What others feel while one long work is under way: chats of another tenant, and `/health`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.e2e.test_crash import spawned
from tests.models import Model

KEYS = [
    {"name": "bulk", "key": "sk-bulk", "tenant": "bulk", "trusted": False, "default_user": "eve"},
    {"name": "other", "key": "sk-other", "tenant": "other"},
    {"name": "root", "key": "sk-root", "tenant": "ops", "admin": True},
]
BULK, OTHER, ROOT = ({"authorization": f"Bearer sk-{name}"} for name in ("bulk", "other", "root"))


@dataclass
class Felt:
    """statuses: of the chats' memory. chats, health: seconds of each."""

    statuses: list[str] = field(default_factory=list)
    chats: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    took: float = 0.0

    def __str__(self) -> str:
        def told(found: list[float]) -> str:
            ordered = sorted(found)
            return (
                f"{len(ordered)} of {1e3 * ordered[len(ordered) // 2]:.0f} ms median, "
                f"{1e3 * ordered[int(0.99 * len(ordered))]:.0f} p99, {1e3 * ordered[-1]:.0f} "
                "worst"
            )

        bad = len(self.statuses) - self.statuses.count("ok")
        return (
            f"took {self.took:.1f} s; chats {told(self.chats)}, {bad} degraded; health "
            f"{told(self.health)}"
        )


@contextlib.asynccontextmanager
async def served(data: Path, **more: str) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway with managed keys in a process of its own."""
    async with (
        Model("Hello.") as up,
        spawned(
            up.url,
            data,
            MNEMOGATE_KEYS=json.dumps(KEYS),
            **{"MNEMOGATE_MEMORY__READ_DEADLINE_MS": "150", **more},
            MNEMOGATE_PROVIDERS=json.dumps({"up": {"base_url": up.url, "api_key": "sk-up"}}),
        ) as (_, client),
    ):
        client.timeout = 600
        yield client


async def beside(
    client: httpx.AsyncClient, work: Callable[[], Awaitable[httpx.Response]]
) -> tuple[httpx.Response, Felt]:
    """Does the work while others chat and look. Returns its answer and what they felt."""
    felt, begun = Felt(), time.monotonic()
    task = asyncio.ensure_future(work())

    async def chatting(number: int) -> None:
        history = []
        for i in itertools.count():
            if task.done() and i:
                return
            history.append({"role": "user", "content": f"question {i} of {number}"})
            at = time.monotonic()
            answer = await client.post(
                "/v1/chat/completions",
                headers=OTHER,
                json={"model": "m", "messages": history, "user": f"u{number}"},
            )
            felt.chats.append(time.monotonic() - at)
            felt.statuses.append(answer.headers["x-memory-status"])
            history.append({"role": "assistant", "content": "Hello."})
            del history[:-20]
            await asyncio.sleep(0.05)

    async def looking() -> None:
        while not task.done():
            at = time.monotonic()
            await client.get("/health")
            felt.health.append(time.monotonic() - at)
            await asyncio.sleep(0.02)

    await asyncio.gather(*(chatting(i) for i in range(3)), looking())
    felt.took = time.monotonic() - begun
    return await task, felt


def passages(count: int) -> bytes:
    """An import of so many passages."""
    return b"".join(
        json.dumps(
            {
                "object": "passage",
                "content": f"Number {i}: she likes the tea of shop {i % 997}.",
                "tags": ["t"],
            }
        ).encode()
        + b"\n"
        for i in range(count)
    )


def chat(count: int, name: str = "long") -> bytes:
    """A conversation of so many messages, as it is brought along."""
    said = [
        {
            "role": "assistant" if i % 2 else "user",
            "content": f"message {i} about the tea of shop {i % 997}",
        }
        for i in range(count)
    ]
    return json.dumps({"id": name, "messages": said}).encode()
