"""Usage records on their way to the store: one for each request, written behind the request's back.

- `add` only appends to a bounded queue: a slow store slows no request. When the queue is full the
  new record is dropped and counted.
- A task writes the queue each second, in batches; a store that fails keeps them queued. A killed
  process loses that second.
- The name of an erased user is taken out as a record is written, in the writer's own order: an
  erasure is a write too, so no
  record with the name lands behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from typing import Any

from gateway.auth.user_resolver import USER_CHARACTERS
from gateway.errors import Unavailable
from gateway.storage import usage as table
from gateway.usage.pricing import MAX_COUNT
from memory import Database, MemoryFault, StoreUnavailable

log = logging.getLogger("mnemogate")
BATCH = 64  # a write that holds nothing up
INTERVAL = 1.0  # seconds between writes
BACK_OFF = 30.0  # seconds, at most, between tries on a store that fails
FLUSH_SECONDS = 2.0
WARN_SECONDS = 60.0
ERASED_SECONDS = 86400.0  # no request lasts longer


@dataclass(slots=True)
class UsageRecord:
    """One request; the columns of the table `usage`.

    created_at: seconds since 1970, when the request began.

    input to reasoning: tokens over all rounds, as billed; input holds cached_input and cache_write,
    output holds reasoning. hidden_input, hidden_output: the part of them that rounds cost which the
    client did not see. estimated: some counts are guesses. cost in USD, None where a price is
    unknown. user: None where nobody is named. code: of the error, None without one.
    """

    request_id: str
    created_at: float
    tenant: str
    user: str | None
    key: str
    model: str
    target: str
    path: str
    mode: str
    latency_ms: float
    status: int
    attempts: int = 0
    rounds: int = 0
    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    hidden_input: int = 0
    hidden_output: int = 0
    estimated: bool = False
    cost: float | None = None
    first_token_ms: float | None = None
    code: str | None = None


COLUMNS = tuple(f.name for f in fields(UsageRecord))
_values = attrgetter(*COLUMNS)


def _row(record: UsageRecord) -> dict[str, Any]:
    """Return the record as the columns take it: one that no store takes would hold up the
    others.
    """
    row = dict(zip(COLUMNS, _values(record), strict=True))
    for name, value in row.items():
        kind = type(value)
        if kind is str and not (len(value) <= USER_CHARACTERS and value.isascii()):
            row[name] = value[:USER_CHARACTERS].encode("utf-8", "replace").decode()
        elif kind is int and value > MAX_COUNT:
            row[name] = MAX_COUNT
    return row


class UsageLog:
    """ready: waits for the store at start-up.

    capacity: records that wait at most. dropped: those that found the queue full, or that the store
    cannot hold.
    """

    def __init__(
        self, db: Database, ready: Callable[[], Awaitable[None]], capacity: int = 10_000
    ) -> None:
        self.dropped = 0
        self._db, self._ready, self._capacity = db, ready, capacity
        self._queue: deque[UsageRecord] = deque()
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[MemoryFault | None] | None = None
        self._erased: dict[tuple[str, str], float] = {}
        self._warned = -WARN_SECONDS

    def add(self, record: UsageRecord) -> None:
        """Queues a record. Never waits, never raises."""
        if len(self._queue) >= self._capacity:
            self._drop(1, f"{self._capacity} of them wait for the store already")
            return
        self._queue.append(record)
        self._some.set()

    def forget(self, tenant: str, user: str) -> None:
        """Take an erased user's name out of every record of a request that began before now.

        Call it inside the transaction that erases; it may run on the writer's thread.
        """
        now = time.time()
        self._erased.pop((tenant, user), None)
        self._erased[tenant, user] = now
        while (first := next(iter(self._erased))) and self._erased[first] < now - ERASED_SECONDS:
            del self._erased[first]

    async def spent_since(self, key: str, since: float) -> float:
        """Return the USD that a key spent since a time, as far as prices are known.

        Raises Unavailable while the store does not answer: a budget nobody knows the rest of is not
        to be spent.
        """
        try:
            await self._ready()
            await self.flush()
            return await table.read_spending(self._db, key, since)
        except MemoryFault as e:
            raise Unavailable(
                f"What the key {key!r} has spent of its budget cannot be read now. Try again "
                "shortly.",
                headers=[(b"retry-after", b"1")],
            ) from e

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work_on(), name="usage-writer")

    async def flush(self) -> None:
        """Write all that is queued now.

        Raises StoreUnavailable when that fails, or one pass over it takes longer than
        `FLUSH_SECONDS`.
        """
        if self._writing is not None and not self._writing.done():
            await self._wait_for_pass()  # it may have begun before the newest records came
        await self._wait_for_pass()

    async def _wait_for_pass(self) -> None:
        """Wait for the pass under way, or for one that it begins."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="usage-flush")
        done, _ = await asyncio.wait({self._writing}, timeout=FLUSH_SECONDS)
        if not done:
            raise StoreUnavailable(f"the usage records were not written within {FLUSH_SECONDS:g} s")
        if (fault := done.pop().result()) is not None:
            raise fault

    async def stop(self) -> None:
        """Write what is queued, as far as `FLUSH_SECONDS` allow; says what is lost."""
        try:
            await self.flush()
        except MemoryFault as e:
            log.warning("%d usage records are lost: %s", len(self._queue), e)
        for task in (self._task, self._writing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._task = self._writing = None

    async def _work_on(self) -> None:
        pause = INTERVAL
        while True:
            await self._some.wait()
            await asyncio.sleep(pause)
            self._some.clear()
            try:
                await self.flush()
                pause = INTERVAL
            except MemoryFault as e:
                pause = min(pause * 2, BACK_OFF)
                self._some.set()
                self._warn(f"{len(self._queue)} usage records wait for the store: {e}")

    async def _write(self) -> MemoryFault | None:
        """Write what is queued when it begins; under load more comes all the time.

        A task of its own: whoever waits for it may leave without records being written twice.
        """
        left = len(self._queue)
        while batch := list(islice(self._queue, min(left, BATCH))):
            left -= len(batch)
            try:
                await table.write_records(self._db, lambda b=batch: self._rows(b))  # type: ignore[misc]
            except MemoryFault as e:
                return e
            except Exception as e:
                # A defect of ours: kept, such a batch would hold up all that come after it.
                self._drop(len(batch), f"they cannot be stored: {e}")
            for _ in batch:
                self._queue.popleft()
        return None

    def _rows(self, batch: Sequence[UsageRecord]) -> list[dict[str, Any]]:
        out = [_row(r) for r in batch]
        for row in out:
            erased = self._erased.get((row["tenant"], row["user"]))
            if erased is not None and row["created_at"] <= erased:
                row["user"] = None
        return out

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        self._warn(f"usage records are dropped, {self.dropped} so far: {why}")

    def _warn(self, text: str) -> None:
        """At most once a minute."""
        now = time.monotonic()
        if now - self._warned >= WARN_SECONDS:
            self._warned = now
            log.warning("%s", text)
