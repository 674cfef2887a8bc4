"""What the parts of a turn take on a filled database: milliseconds, and the server's CPU."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from memory.conversation.history import Messages
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import Json
from memory.ids import new_id
from memory.retrieval.retriever import Retriever, SemanticSearch
from memory.service import Memory
from memory.session.request import TurnRequest
from memory.session.turn_record import TurnOutcome
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.turns import turn_prefetch
from memory.stores.sql.turns.turn_reader import SnapshotQuery
from tests.bench.retrieval.latency import Random, said
from tests.bench.scale.filling import Line
from tests.postgres_server import PostgresServer

Measure = Callable[[Line], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Times:
    """Of one part of a turn, in ms.

    server: CPU of the database's processes, for a write with what the turn reads before.
    """

    p50: float
    p95: float
    server: float


class Measures:
    """Measures the parts of a turn on conversations chosen at random."""

    def __init__(self, memory: Memory, server: PostgresServer, seed: int = 3) -> None:
        self._memory, self._server = memory, server
        self._by_meaning = Retriever(memory.db, SemanticSearch(Random()))
        self._chosen = random.Random(seed)

    async def all(
        self, lines: Sequence[Line], embedded: Sequence[Line], times: int
    ) -> dict[str, Times]:
        """Measure every part.

        embedded: conversations whose messages have vectors. times: how often each is measured.
        """
        parts: dict[str, Measure] = {
            "validation": self.validate,
            "snapshot": self.read,
            "write": self.write,
            "write, pages logged": self.write_again,
            "search by words": self.search,
        }
        out = {name: await self._times(measure, lines, times) for name, measure in parts.items()}
        out["search with vectors"] = await self._times(self.search_near, embedded, times)
        two = out["write, pages logged"]
        return {**out, "write, pages logged": replace(two, server=two.server / 2)}

    async def _times(self, measure: Measure, lines: Sequence[Line], times: int) -> Times:
        # Statements are prepared, code is warm.
        for _ in range(max(1, times // 8)):
            await measure(self._chosen.choice(lines))
        chosen = [self._chosen.choice(lines) for _ in range(times)]
        cpu = server_cpu(self._server)
        taken = sorted([await measure(line) for line in chosen])
        cpu = server_cpu(self._server) - cpu
        p95 = taken[int(len(taken) * 0.95)]
        return Times(statistics.median(taken), p95, cpu * 1e3 / times)

    async def validate(self, line: Line) -> float:
        """Compare the versions that a kept conversation was read with."""
        look = scopes.versions(line.scope_id, line.conversation)
        begun = time.perf_counter()
        told = await self._memory.db.read(look, single=True)
        taken = time.perf_counter() - begun
        if not told or None in told[0][:2]:
            raise RuntimeError(f"conversation {line.name} is not there")
        return taken * 1e3

    async def read(self, line: Line) -> float:
        """Read all that a turn needs of a conversation that nothing is kept of."""
        messages = Messages.of([*line.said, self._asked()])
        turn = RequestHistory.of(line.scope.key, messages)
        ask = SnapshotQuery(line.scope, turn, self._memory.policy.blocks)
        begun = time.perf_counter()
        found = await self._memory.db.read(partial(turn_prefetch.snapshot, ask=ask), single=True)
        taken = time.perf_counter() - begun
        state = found.conversation if found else None
        if state is None or state.id != line.conversation:
            raise RuntimeError(f"conversation {line.name} was not recognised")
        return taken * 1e3

    async def write(self, line: Line) -> float:
        """Record a plain turn after a checkpoint, which goes on where the conversation ended."""
        asked = self._asked()
        messages = Messages.of([*line.said, asked])
        ask = TurnRequest(line.scope, messages, "gpt-4.1-mini", new_id("req"))
        session = await self._memory.begin(ask)
        answer = {"role": "assistant", "content": said(self._chosen)}
        begun = time.perf_counter()
        await session.finish(TurnOutcome([answer]))
        taken = time.perf_counter() - begun
        if session.is_late:
            raise RuntimeError("the store did not take a turn")
        line.more += [asked, answer]
        return taken * 1e3

    async def write_again(self, line: Line) -> float:
        """Record the next plain turn, whose pages the one before put into the log.

        The first change of a page after a checkpoint logs all of it, so that a torn one can be
        mended. The larger the database, the more pages are changed for the first time.
        """
        await self.write(line)
        return await self.write(line)

    async def search(self, line: Line) -> float:
        """Search a user's messages for some of the words of one of them."""
        return await self._search(self._memory.retrieval, line)

    async def search_near(self, line: Line) -> float:
        """Search by similarity too, of each of the user's messages."""
        return await self._search(self._by_meaning, line)

    async def _search(self, retrieval: Retriever, line: Line) -> float:
        words = self._chosen.choice(line.said)["content"].split()
        query = SearchQuery(" ".join(words[::3]), ("user", "assistant"))
        begun = time.perf_counter()
        found = await retrieval.messages(line.scope_id, query)
        taken = time.perf_counter() - begun
        if not found:
            raise RuntimeError(f"{query.words!r} is not found")
        return taken * 1e3

    def _asked(self) -> Json:
        return {"role": "user", "content": said(self._chosen)}


def server_cpu(server: PostgresServer) -> float:
    """Return the CPU seconds of the server's processes, with those that have ended."""
    child: Any = server.child
    # after the name, which may have spaces: the 14th and 15th are of children that ended
    told = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    ended = sum(map(int, told[13:15])) / os.sysconf("SC_CLK_TCK")
    pids = [child.pid]
    for task in Path(f"/proc/{child.pid}/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    return ended + sum(_cpu_of(pid) for pid in pids)


def _cpu_of(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:  # it ended meanwhile
        return 0.0
