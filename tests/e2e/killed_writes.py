"""Turns whose tools change something, under a gateway that is killed at random moments.

Each point plays two turns at once, one with an Idempotency-Key and one without, kills the gateway,
and retries both on the next one. A turn has three writes in two rounds.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.operator_tools import ToolServer, city_of
from tests.e2e.wire.child import child
from tests.models import Model, call, calls

# Of a turn: what is paid side by side.
ROUNDS = (("a", "b"), ("c",))
# That the model thinks in each round.
MODEL_SECONDS = 0.1
CONFIG = """
[toolbox]
grant = ["pay"]
[providers.up]
base_url = "{up}"
[routing]
ask_windows = false
[memory]
read_deadline_ms = 10000
recall = "tools"
extract = "off"
[tools.pay]
kind = "http"
method = "POST"
body = "none"
url = "{server}/pay/{{city}}"
required = ["city"]
parameters = {{ city = {{ type = "string" }} }}
"""


def not_known(name: str) -> str:
    """Return what a model reads of a write that was started and may have taken effect."""
    return (
        f"Error: {name} was started before the connection broke; whether it took effect is not "
        "known. Check before you repeat it."
    )


@dataclass
class Tally:
    """What came of all points. faults: in words, none if the promises hold.

    equal: points at which the server counted as many runs as models were told of.
    """

    points: int = 0
    equal: int = 0
    unknown: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.points} kills, {self.runs} writes: {len(self.faults)} broken promises; the "
            f"server's count equals the acknowledged runs at {self.equal} points; {self.unknown} "
            "runs are told to be unknown"
        )


async def _answer(seen: Any, wire: Any) -> Any:
    """Answer as a model that pays for what the user names, round by round."""
    await asyncio.sleep(MODEL_SECONDS)
    messages = seen.json["messages"]
    name = next(m["content"] for m in messages if m["role"] == "user")
    finished = sum(m["role"] == "assistant" for m in messages)
    if finished >= len(ROUNDS):
        return "Done."
    cities = [f"{name}-{place}" for place in ROUNDS[finished]]
    return calls(*(call("pay", {"city": city}, city) for city in cities))


async def _ask(client: Any, name: str) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": name}], "user": "ada"}
    headers = {"idempotency-key": name} if name.endswith("keyed") else {}
    return await client.post("/v1/chat/completions", json=body, headers=headers)


def _names(point: int) -> tuple[str, str]:
    return f"{point}-keyed", f"{point}-bare"


def _cities(point: int) -> Iterator[str]:
    for name in _names(point):
        yield from (f"{name}-{place}" for places in ROUNDS for place in places)


def _states(folder: Path) -> dict[str, str]:
    """Return the state of each call in the database of a gateway that is gone."""
    with sqlite3.connect(folder / "data" / "mnemogate.db") as conn:
        rows = conn.execute("SELECT arguments, state FROM tool_calls").fetchall()
    return {arguments.split('"')[3]: state for arguments, state in rows}


class KilledWrites:
    """Plays the points on one data folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, random.Random(seed)
        self._server, self._model = ToolServer(pay="paid"), Model(_answer)
        # Of two turns that nobody kills.
        self._seconds = 0.0
        # States of calls, when the gateway was killed.
        self._before: dict[str, str] = {}
        # Turns that were answered before that.
        self._answered: set[str] = set()
        self.tally = Tally()

    async def play(self, points: int) -> Tally:
        async with self._server, self._model:
            config = CONFIG.format(up=self._model.url, server=self._server.root)
            for point in range(points + 1):
                async with child(self._folder, config) as (gateway, client):
                    if point:
                        await self._retry(client, point - 1)
                    else:
                        await self._measure(client)
                    if point < points:
                        await self._kill(gateway, client, point)
                if point:
                    self._check(point - 1)
                self._before = _states(self._folder)
        return self.tally

    async def _measure(self, client: Any) -> None:
        for name in ("cold", "warm"):
            begun = time.monotonic()
            await asyncio.gather(_ask(client, f"{name}-keyed"), _ask(client, f"{name}-bare"))
            self._seconds = time.monotonic() - begun

    async def _kill(self, gateway: Any, client: Any, point: int) -> None:
        names = _names(point)
        asking = [asyncio.create_task(_ask(client, name)) for name in names]
        await asyncio.sleep(self._random.uniform(0, 1.1 * self._seconds))
        gateway.process.kill()
        await gateway.process.wait()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        pairs = zip(names, answers, strict=True)
        self._answered = {name for name, answer in pairs if not isinstance(answer, Exception)}

    async def _retry(self, client: Any, point: int) -> None:
        """Retry the turns of a point: with its key twice, without one until it is answered."""
        keyed, bare = _names(point)
        # The same body after a success is a new request.
        for name in (keyed, *(() if bare in self._answered else (bare,)), keyed):
            answer = await _ask(client, name)
            # A turn without its memory.
            reason = answer.headers.get("x-memory-reason", "")
            if '"content":"Done."' not in answer.text.replace(" ", "") or reason:
                self.tally.faults.append(f"{name}: {answer.status_code} {reason} {answer.text}")

    def _check(self, point: int) -> None:
        """Compare what the server counted with what models were told. Reads the states before."""
        results = {
            message["tool_call_id"]: message["content"]
            for body in self._model.bodies
            for message in body["messages"]
            if message["role"] == "tool"
        }
        requested = [city_of(seen) for seen in self._server.runs("pay")]
        is_equal = True
        for city in _cities(point):
            count, result = requested.count(city), results.get(city, "nothing")
            is_told = result.endswith("\npaid")
            state = self._before.get(city, "no row")
            if count > 1:
                self.tally.faults.append(f"{city} ran {count} times")
            if not is_told and result != not_known("pay"):
                self.tally.faults.append(f"{city}: {result}")
            if result == not_known("pay") and state != "started":
                self.tally.faults.append(f"{city} is told to be unknown, its row was {state}")
            if is_told and not count:
                self.tally.faults.append(f"{city} is told to be done and did not run")
            is_equal = is_equal and count == is_told
            self.tally.runs += count
            self.tally.unknown += result == not_known("pay")
        self.tally.points += 1
        self.tally.equal += is_equal
