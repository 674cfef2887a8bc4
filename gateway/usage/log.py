"""Usage records, one for each request, written asynchronously by a background task.

- `add` only appends to a bounded queue, so a slow store slows no request. If the queue is full, the
  new record is dropped and counted.
- A task writes the queue each second, in batches; if the store fails they stay queued. A killed
  process loses that second.
- The name of an erased user is removed when a record is written, in the order of the writer: an
  erasure is a write too, so no record with the name is written after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from gateway.auth.user_resolver import USER_CHARACTERS
from gateway.errors import Unavailable
from gateway.storage import usage as table
from gateway.usage.pricing import MAX_COUNT, TokenUsage
from memory import Database, MemoryFault, StoreUnavailable

log = logging.getLogger("mnemogate")
# Records a write, small enough to delay nothing else.
BATCH = 64
# Seconds between writes.
INTERVAL = 1.0
# Longest pause in seconds between attempts on a store that fails.
BACK_OFF = 30.0
FLUSH_SECONDS = 2.0
WARN_SECONDS = 60.0
# No request lasts longer.
ERASED_SECONDS = 86400.0


class UsageRecord(msgspec.Struct):
    """One request; the columns of the table `usage`.

    created_at: Unix time at which the request began. input to reasoning: tokens over all rounds, as
    billed; input includes cached_input and cache_write, output includes reasoning. hidden_input,
    hidden_output: the part that was used by rounds which the client did not see. estimated: some
    counts are estimates. cost: in USD, None if a price is unknown. user: None if nobody is named.
    code: of the error, None without one. agent: whose profile was called, "" for none. parent: id
    of the client's request whose agent asked.
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
    agent: str = ""
    parent: str | None = None


COLUMNS = UsageRecord.__struct_fields__
_values = attrgetter(*COLUMNS)


def _row(record: UsageRecord) -> dict[str, Any]:
    """Return the record as its columns accept it.

    A record that the store refuses would hold up the others.
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
    """Queues and writes usage records.

    ready: waits for the store at start-up. capacity: size of the queue. secret: of the memory.
    dropped_records: number of records
    that found the queue full, or that the store cannot hold.
    """

    def __init__(
        self,
        db: Database,
        ready: Callable[[], Awaitable[None]],
        capacity: int = 10_000,
        secret: bytes = b"",
    ) -> None:
        self.dropped_records = 0
        self._secret = secret
        self._db = db
        self._ready = ready
        self._capacity = capacity
        self._queue: deque[UsageRecord] = deque()
        self._has_records = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[MemoryFault | None] | None = None
        self._erasure_times: dict[tuple[str, str], float] = {}
        self._warned = -WARN_SECONDS

    def add(self, record: UsageRecord) -> None:
        """Queue a record. Never waits, never raises."""
        if len(self._queue) >= self._capacity:
            self._drop(1, f"{self._capacity} of them are already waiting for the store")
            return
        self._queue.append(record)
        self._has_records.set()

    def forget(self, tenant: str, user: str) -> None:
        """Remove an erased user's name from all records of requests that began before now.

        Call it inside the transaction that erases; it may run on the writer's thread.
        """
        now = time.time()
        self._erasure_times.pop((tenant, user), None)
        self._erasure_times[tenant, user] = now
        while (oldest_name := next(iter(self._erasure_times))) and self._erasure_times[
            oldest_name
        ] < now - ERASED_SECONDS:
            del self._erasure_times[oldest_name]

    async def spent_since(self, key: str, since: float) -> float:
        """Return the USD that a key has spent since a Unix time, as far as prices are known.

        Raises Unavailable if the store does not answer: a budget whose rest is unknown must not be
        spent.
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

    async def correct(
        self, request: str, usage: TokenUsage, cost: float | None
    ) -> table.CorrectedRecord | None:
        """Put what a request used in place of an estimate, once.

        Returns the record before; None if it is not there yet. Raises StoreUnavailable.
        """
        await self.flush()
        return await table.correct_record(self._db, request, usage, cost)

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work_on(), name="usage-writer")

    async def flush(self) -> None:
        """Write everything that is queued now.

        Raises StoreUnavailable if that fails, or one pass takes longer than `FLUSH_SECONDS`.
        """
        if self._writing is not None and not self._writing.done():
            # It may have started before the newest records were added.
            await self._wait_for_pass()
        await self._wait_for_pass()

    async def _wait_for_pass(self) -> None:
        """Wait for the current pass; start one if there is none."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="usage-flush")
        done_tasks, _ = await asyncio.wait({self._writing}, timeout=FLUSH_SECONDS)
        if not done_tasks:
            raise StoreUnavailable(f"the usage records were not written within {FLUSH_SECONDS:g} s")
        if (fault := done_tasks.pop().result()) is not None:
            raise fault

    async def stop(self) -> None:
        """Write what is queued, for at most `FLUSH_SECONDS`; log what is lost."""
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
            await self._has_records.wait()
            await asyncio.sleep(pause)
            self._has_records.clear()
            try:
                await self.flush()
                pause = INTERVAL
            except MemoryFault as e:
                pause = min(pause * 2, BACK_OFF)
                self._has_records.set()
                self._warn(f"{len(self._queue)} usage records wait for the store: {e}")

    async def _write(self) -> MemoryFault | None:
        """Write the records that are queued now; under load more arrive all the time.

        A task of its own, so that a caller may be cancelled without records being written twice.
        """
        records_left = len(self._queue)
        alone = 0
        while batch := list(islice(self._queue, min(records_left, 1 if alone else BATCH))):
            try:
                await table.write_records(self._db, partial(self._rows, batch), self._secret)
            except MemoryFault as e:
                return e
            except Exception as e:
                if isinstance(e, ValueError) and len(batch) > 1:
                    # Again one by one, for the sake of those that fit.
                    alone = len(batch)
                    continue
                # A bug of ours: if kept, such a batch would hold up all later ones.
                self._drop(len(batch), f"they cannot be stored: {e}")
            records_left = records_left - len(batch)
            alone = max(0, alone - 1)
            for _ in batch:
                self._queue.popleft()
        return None

    def _rows(self, batch: Sequence[UsageRecord]) -> list[dict[str, Any]]:
        out = [_row(r) for r in batch]
        for row in out:
            erased_at = self._erasure_times.get((row["tenant"], row["user"]))
            if erased_at is not None and row["created_at"] <= erased_at:
                row["user"] = None
        return out

    def _drop(self, count: int, why: str) -> None:
        self.dropped_records += count
        self._warn(f"usage records are dropped, {self.dropped_records} so far: {why}")

    def _warn(self, text: str) -> None:
        """Log a warning, at most once a minute."""
        now = time.monotonic()
        if now - self._warned >= WARN_SECONDS:
            self._warned = now
            log.warning("%s", text)
