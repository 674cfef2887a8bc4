"""The in-process worker: one job at a time, each within its lease. Kinds without a handler here wait for one.

A stop lets nothing half done: the running handler is cancelled, its job goes back to be taken at once by the next worker.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from memory.errors import MemoryFault
from memory.jobs import queue
from memory.jobs.queue import Claim, Job
from memory.stores.sql.engine import Database

log = logging.getLogger("memgate")
Handler = Callable[[Job], Awaitable[None]]
LEASE = 120.0  # seconds a handler has


class Worker:
    """poll: seconds between looks at an empty queue; `wake` cuts the wait short."""

    def __init__(self, db: Database, *, poll: float = 1.0, lease: float = LEASE) -> None:
        self._db, self._poll, self._lease = db, poll, lease
        self._handlers: dict[str, Handler] = {}
        self._periods: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def register(self, kind: str, handler: Handler, *, every: float | None = None) -> None:
        """Runs `handler` for jobs of this kind. It may run twice for one job. every: seconds after which one is enqueued by
        itself, the first at the start."""
        self._handlers[kind] = handler
        if every is not None:
            self._periods[kind] = every

    def wake(self) -> None:
        """Tells the worker that a job was enqueued."""
        self._woken.set()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._work_on(), name="memory-worker")

    async def stop(self) -> None:
        """Cancels what runs and waits for it to end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def drain(self) -> None:
        """Runs every job that is due now, and returns."""
        while await self._one():
            pass

    async def _work_on(self) -> None:
        while True:
            try:
                await self._tick()
                busy = await self._one()
            except MemoryFault as e:
                log.warning("background jobs wait for the store: %s", e)
                busy = False
            if not busy:
                await self._rest()

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), self._poll)
        self._woken.clear()

    async def _tick(self) -> None:
        """Enqueues the periodic jobs whose time has come; the dedupe key keeps many workers from piling them up."""
        now = time.monotonic()
        for kind, every in self._periods.items():
            if now >= self._next.get(kind, now):
                self._next[kind] = now + every
                await self._db.write(lambda conn, k=kind: queue.enqueue(conn, Job(k, dedupe=f"every:{k}")))  # type: ignore[misc]

    async def _one(self) -> bool:
        """Runs one job. Returns whether there was one."""
        kinds = tuple(self._handlers)
        if not await self._db.read(lambda conn: queue.due(conn, kinds)):
            return False
        claimed = await self._db.write(lambda conn: queue.claim(conn, kinds, self._lease))
        if claimed is None:
            return False
        await self._run(claimed)
        return True

    async def _run(self, claimed: Claim) -> None:
        kind = claimed.job.kind
        try:
            async with asyncio.timeout(self._lease):
                await self._handlers[kind](claimed.job)
        except asyncio.CancelledError:
            await asyncio.shield(self._db.write(lambda conn: queue.returned(conn, claimed)))
            raise
        except Exception as e:
            # A handler is foreign ground: whatever it raises, the job is tried again and the worker lives on.
            log.warning("background job %s (attempt %d) failed", kind, claimed.attempts, exc_info=e)
            name = type(e).__name__
            await self._db.write(lambda conn: queue.failed(conn, claimed, name))
            return
        await self._db.write(lambda conn: queue.done(conn, claimed))
