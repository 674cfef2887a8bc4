"""The in-process worker: runs a few jobs at a time, each within its lease.

Kinds without a handler here wait for one. One task runs quick jobs, so that an erasure never waits
for a model; others run slow ones, and one those that take minutes. Stopping leaves nothing half
done: the running handler is cancelled, and its job returns to the queue for the next worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from memory.errors import MemoryFault, Postponed, Unusable
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.write_lock import EVERYTHING, NOTHING, WriteLock
from memory.stores.sql.rows import jobs
from memory.stores.sql.rows.jobs import ClaimedJob, Effect, QueuedJob

log = logging.getLogger("mnemogate")
# Its result is written when the job is completed, once.
Handler = Callable[[QueuedJob], Awaitable[Effect | None]]
# Timeout of a handler.
LEASE = 120.0
# Tasks that mostly wait for models.
SLOW_HANDS = 3
# Timeout of a handler that takes minutes.
LONG_LEASE = 900.0


class Worker:
    """Runs background jobs.

    poll: seconds between checks of an empty queue; `wake` shortens the wait.
    """

    def __init__(self, db: Database, *, poll: float = 1.0, lease: float = LEASE) -> None:
        self._db = db
        self._poll = poll
        self._lease = lease
        self._handlers: dict[str, Handler] = {}
        self._periods: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._forgetting: dict[str, Callable[[int], None]] = {}
        self._slow_kinds: set[str] = set()
        self._long_lease: set[str] = set()
        self._small_kinds: set[str] = set()
        self._held_kinds: tuple[frozenset[str], Callable[[], Collection[str]]] = (
            frozenset(),
            tuple,
        )
        self._resumed: list[str | None] = []
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def register(
        self,
        kind: str,
        handler: Handler,
        *,
        interval: float | None = None,
        slow: bool = False,
        small: bool | Callable[[int], None] = False,
    ) -> None:
        """Run `handler` for jobs of this kind.

        It may run twice for one job. interval: period in seconds in which one is queued
        automatically, the first at the start. slow: it calls a model. small: its result writes a
        few rows that no turn caches (`memory.session.conversation_cache`), or that this function
        makes turns forget, given the scope's row key.
        """
        self._handlers[kind] = handler
        if callable(small):
            self._forgetting[kind] = small
        for kinds, is_wanted in ((self._slow_kinds, slow), (self._small_kinds, bool(small))):
            if is_wanted:
                kinds.add(kind)
        self._periods.pop(kind, None)
        if interval is not None:
            self._periods[kind] = interval

    def register_long(self, kind: str, handler: Handler) -> None:
        """Run `handler` for jobs of this kind, which take minutes, one at a time."""
        self._handlers[kind] = handler
        self._long_lease.add(kind)

    def limit(self, kinds: Collection[str], tenants: Callable[[], Collection[str]]) -> None:
        """Claim jobs of these kinds for some tenants only, where others may run the rest.

        tenants: those whose credential is held here now.
        """
        self._held_kinds = (frozenset(kinds) if self._db.is_shared else frozenset(), tenants)

    def wake(self) -> None:
        """Note that a job was queued."""
        self._woken.set()

    def resume(self, tenant: str) -> None:
        """Note that a request of this tenant brought a credential."""
        self._resumed.append(tenant)
        self.wake()

    def start(self) -> None:
        if not self._tasks:
            # Jobs that waited for a credential may not need one any more.
            self._resumed.append(None)
            work_loops = [self._work_on(self._quick_kinds, ticks=True)]
            work_loops += [self._work_on(lambda: self._slow_kinds) for _ in range(SLOW_HANDS)]
            work_loops.append(self._work_on(lambda: self._long_lease, lease=LONG_LEASE))
            self._tasks = [
                asyncio.create_task(work_loop, name=f"memory-worker-{i}")
                for i, work_loop in enumerate(work_loops)
            ]

    async def stop(self) -> None:
        """Cancel the running jobs and wait for them to end."""
        tasks = set(self._tasks)
        self._tasks = []
        while tasks:
            for task in tasks:
                task.cancel()
            # Repeated, since a handler may swallow it.
            _, tasks = await asyncio.wait(tasks, timeout=0.25)

    async def drain(self) -> None:
        """Run every job that is due now, also those of turns that wait to be filed."""
        await self._db.filer.file()
        while await self._one(tuple(self._handlers)):
            pass

    def _quick_kinds(self) -> Collection[str]:
        return [kind for kind in self._handlers if kind not in self._slow_kinds | self._long_lease]

    async def _work_on(
        self,
        kinds: Callable[[], Collection[str]],
        *,
        ticks: bool = False,
        lease: float | None = None,
    ) -> None:
        while True:
            try:
                if ticks:
                    await self._tick()
                was_busy = await self._one(tuple(kinds()), lease)
            except MemoryFault as e:
                log.warning("background jobs wait for the store: %s", e)
                was_busy = False
            if not was_busy:
                await self._rest()

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            # Not wait_for, which before 3.12 loses a cancellation that meets a wake.
            async with asyncio.timeout(self._poll):
                await self._woken.wait()
        self._woken.clear()

    async def _tick(self) -> None:
        """Resume jobs that waited for a credential, and queue periodic jobs that are due.

        The dedupe key prevents several workers from queueing them twice.
        """
        while self._resumed:
            tenant = self._resumed[0]
            if await self._db.read(partial(jobs.waits, tenant=tenant)):
                await self._db.write(partial(jobs.resume, tenant=tenant), lock=NOTHING)
            self._resumed.pop(0)
            self._woken.set()
        now = time.monotonic()
        for kind, interval in self._periods.items():
            if now >= self._next.get(kind, now):
                self._next[kind] = now + interval
                shared = self._db.is_shared
                await self._db.write(
                    partial(jobs.enqueue_periodic, kind=kind, interval=interval if shared else 0.0),
                    small=True,
                    lock=NOTHING,
                )

    async def _one(self, kinds: Collection[str], lease: float | None = None) -> bool:
        """Run one job of these kinds; return whether there was one."""
        lease = lease or self._lease
        if not kinds:
            return False
        is_limited, tenants = self._held_kinds
        job_filter = jobs.JobFilter(tuple(kinds), is_limited, tenants() if is_limited else ())
        if not await self._db.read(jobs.due(job_filter), small=True, single=True, of=NO_TURNS):
            return False
        claimed_job = await self._claim(job_filter, lease)
        if claimed_job is None:
            return False
        await self._run(claimed_job, lease)
        return True

    async def _claim(self, job_filter: jobs.JobFilter, lease: float) -> ClaimedJob | None:
        """Claim a job; one that is claimed while the worker stops is given back."""
        claiming = asyncio.ensure_future(
            self._db.write(
                self._db.apart_from_turns(lambda conn: jobs.claim(conn, job_filter, lease)),
                small=True,
                lock=NOTHING,
            )
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(claiming))
            raise

    async def _give_back(self, claiming: asyncio.Future[ClaimedJob | None]) -> None:
        if (claimed_job := await claiming) is not None:
            await self._db.write(
                lambda conn: jobs.release(conn, claimed_job), small=True, lock=NOTHING
            )

    async def _run(self, claimed_job: ClaimedJob, lease: float) -> None:
        kind = claimed_job.job.kind
        try:
            async with asyncio.timeout(lease):
                effect = await self._handlers[kind](claimed_job.job)
            scope_id = claimed_job.job.scope_id
            complete_job = partial(jobs.complete, claimed_job=claimed_job, effect=effect)
            await self._db.write(
                self._db.behind_turns_of(scope_id, complete_job),
                small=effect is None or kind in self._small_kinds,
                lock=_lock_of(claimed_job.job, effect),
            )
            forget = self._forgetting.get(kind)
            if effect is not None and forget is not None and scope_id is not None:
                forget(scope_id)
        except Postponed:
            await self._db.write(
                lambda conn: jobs.postpone(conn, claimed_job), small=True, lock=NOTHING
            )
        except asyncio.CancelledError:
            await asyncio.shield(
                self._db.write(
                    lambda conn: jobs.release(conn, claimed_job), small=True, lock=NOTHING
                )
            )
            raise
        except Exception as e:
            # Whatever a handler raises, the job is retried and the worker continues.
            defect = None if isinstance(e, MemoryFault) else e
            log_values = (kind, claimed_job.attempts, e)
            log.warning("background job %s (attempt %d) failed: %s", *log_values, exc_info=defect)
            name = type(e).__name__
            max_attempts = _most_attempts(e)
            await self._db.write(
                lambda conn: jobs.fail(conn, claimed_job, name, max_attempts),
                small=True,
                lock=NOTHING,
            )


def _most_attempts(error: Exception) -> int:
    if isinstance(error, Unusable):
        if error.is_last:
            return 1
        return jobs.ANSWERS
    return jobs.ATTEMPTS


def _lock_of(job: QueuedJob, effect: jobs.Effect | None) -> WriteLock:
    """Return what the end of a job keeps others from: writes of its scope, if it has an effect."""
    if effect is None:
        return NOTHING
    if job.scope_id is None:
        return EVERYTHING
    return job.scope_id
