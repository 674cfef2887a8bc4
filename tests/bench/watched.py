"""`python -m tests.bench.watched`: does an open dashboard slow turns down?

The same chat load, round after round with the dashboard closed and open. Open means: the live feed
over server-sent events, and a page fetched each second, by somebody who is signed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import uvloop

from tests.bench.load import OPENING, Load, Result, Shape
from tests.bench.scenarios import measured, talks
from tests.bench.subjects import Mock, Subject, gateway

ROUNDS = 4
SHAPE = Shape(users=8, conversations=128, turns=18)
EVERY_SECONDS = 1.0
# As in the other benches: a model that uses its memory by itself, and no turn without its memory.
ASKS = {
    "memory__read_deadline_ms": "10000",
    "memory__recall": "tools",
    "memory__extract": "off",
}


class Watcher:
    """Somebody with the dashboard open. turns: that the feed has shown."""

    def __init__(self, root: str, token: str) -> None:
        self._http = httpx.AsyncClient(base_url=f"{root}/ui", timeout=30)
        self._token, self.turns, self.pages = token, 0, 0

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look while the context lasts."""
        signed_in = await self._http.post(
            "/sign-in", data={"key": self._token}, headers={"sec-fetch-site": "same-origin"}
        )
        assert signed_in.status_code == 303, signed_in.text
        tasks = [asyncio.create_task(work()) for work in (self._listen, self._refresh)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._http.aclose()

    async def _listen(self) -> None:
        async with self._http.stream("GET", "/feed/events", timeout=None) as feed:
            async for line in feed.aiter_lines():
                self.turns += line == "event: turn"

    async def _refresh(self) -> None:
        while True:
            page = await self._http.get("/feed")
            assert page.status_code == 200, page.text
            self.pages += 1
            await asyncio.sleep(EVERY_SECONDS)


async def play(mock: Mock, subject: Subject, data: Path, *, is_open: bool) -> Result:
    """Play the load once."""
    found = talks("watched", SHAPE)
    await Load(subject.url, subject.headers).play(found, SHAPE.users, OPENING)
    if not is_open:
        return await measured(mock, subject, found, SHAPE.users, SHAPE.turns)
    root = subject.url.partition("/v1/")[0]
    watcher = Watcher(root, (data / "token").read_text().strip())
    async with watcher.looking():
        result = await measured(mock, subject, found, SHAPE.users, SHAPE.turns)
    assert watcher.turns
    assert watcher.pages
    return result


def describe(name: str, runs: list[Result]) -> str:
    """Return the medians over the rounds, and the range of CPU."""
    cpu = [run.cpu * 1e6 / run.turns for run in runs]
    cuts = [statistics.quantiles(run.latencies, n=100) for run in runs]
    return (
        f"{name:<7} CPU {statistics.median(cpu):.0f} us ({min(cpu):.0f}-{max(cpu):.0f})  "
        f"p50 {statistics.median(c[49] for c in cuts):.2f} ms  "
        f"p99 {statistics.median(c[98] for c in cuts):.2f} ms  "
        f"errors {sum(run.errors for run in runs)}"
    )


async def compare() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, mock = Path(folder), Mock()
        subject = gateway("watched", mock, data, **ASKS)
        runs: dict[str, list[Result]] = {"closed": [], "open": []}
        try:
            for number in range(ROUNDS):
                for name in runs if number % 2 else reversed(runs):
                    sys.stderr.write(f"round {number + 1} of {ROUNDS}, {name}\n")
                    runs[name].append(await play(mock, subject, data, is_open=name == "open"))
        finally:
            subject.stop()
            mock.stop()
        for name, found in runs.items():
            sys.stdout.write(f"{describe(name, found)}\n")


if __name__ == "__main__":
    uvloop.run(compare())
