"""`python -m tests.bench.sandbox_calls`: does the gateway answer while code runs (row S2)?

Two turns at a time call `run_code` fifty times each, wave after wave. Every call must have its
result, and `/health` must be answered within 50 ms at p99. The looks have a connection of their
own. On a busy machine the looks wait for processors, which bubblewrap's children use as well.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.e2e.wire.child import child
from tests.models import Model, call, calls

TURNS, CALLS, WAVES = 2, 50, 5
PROBE_SECONDS = 0.01
MAX_P99_MS = 50.0
CODES = {
    "a short program": "sum(range(1000))",
    "a longer one": "sum(i % 7 for i in range(200000))",
}
CONFIG = """
[toolbox]
grant = ["run_code"]
parallel = 50
[providers.up]
base_url = "{up}"
[routing]
ask_windows = false
[memory]
recall = "tools"
extract = "off"
[tools.run_code]
kind = "run_code"
sandbox = "{sandbox}"
timeout = 120
"""


def answer(seen: Any, wire: Any) -> Any:
    """Answer as a model that runs what the user says, fifty times, and tells what came of it."""
    messages = seen.json["messages"]
    results = [m["content"] for m in messages if m["role"] == "tool"]
    if results:
        return str(sum("Error" not in result for result in results))
    codes = [f"{messages[-1]['content']}\n# {number}" for number in range(CALLS)]
    return calls(*(call("run_code", {"code": code}, f"call_{i}") for i, code in enumerate(codes)))


async def _probe(url: str, times: list[float]) -> None:
    """Ask for the health until this is cancelled; note how long each answer took, in ms."""
    async with httpx.AsyncClient(base_url=url) as client:
        while True:
            begun = time.perf_counter()
            (await client.get("/health")).raise_for_status()
            times.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(PROBE_SECONDS)


class Looks(NamedTuple):
    """What a number of waves came to. answered: calls. times: of each look, in ms."""

    answered: int
    seconds: float
    times: list[float]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100)[98]


async def play(client: httpx.AsyncClient, url: str, code: str, waves: int = WAVES) -> Looks:
    """Let two turns at a time call `run_code` fifty times each, and look meanwhile."""

    async def ask() -> int:
        body = {"model": "m", "messages": [{"role": "user", "content": code}]}
        answer = await client.post("/v1/chat/completions", json=body)
        return int(answer.json()["choices"][0]["message"]["content"])

    await ask()
    times: list[float] = []
    probing = asyncio.create_task(_probe(url, times))
    begun, answered = time.perf_counter(), 0
    for _ in range(waves):
        answered += sum(await asyncio.gather(*(ask() for _ in range(TURNS))))
    seconds = time.perf_counter() - begun
    probing.cancel()
    return Looks(answered, seconds, times)


def _tell(looks: Looks) -> str:
    return (
        f"{looks.answered} of {TURNS * CALLS * WAVES} calls answered in {looks.seconds:.1f} s; "
        f"/health p50 {statistics.median(looks.times):.1f} ms, p99 {looks.p99:.1f} ms (bar "
        f"{MAX_P99_MS:g}; {len(looks.times)} looks)"
    )


async def main() -> None:
    """Print the figures."""
    async with Model(answer) as up:
        for sandbox in ("monty", "bubblewrap"):
            with tempfile.TemporaryDirectory(prefix="mnemogate-sandbox-") as name:
                config = CONFIG.format(up=up.url, sandbox=sandbox)
                async with child(Path(name), config) as (gateway, _):
                    async with httpx.AsyncClient(base_url=gateway.url, timeout=200) as client:
                        for kind, code in CODES.items():
                            figures = _tell(await play(client, gateway.url, code))
                            print(f"{sandbox}, {kind}: {figures}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
