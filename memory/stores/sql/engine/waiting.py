"""Waits for the store without blaming it for a busy event loop, or for a queue.

A deadline says how long the store may take. Until one of its connections is free it takes nothing:
that wait has a bound of its own, `WAIT_SECONDS`, and the deadline runs from its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

# That a work with a deadline waits for a connection.
WAIT_SECONDS = 5.0
_on_connection: ContextVar[Callable[[], None] | None] = ContextVar("on_connection", default=None)

# How late a busy process may notice a deadline.
BUSY_SECONDS = 0.01


async def ends_within(task: asyncio.Future[Any], seconds: float | None) -> bool:
    """Wait for a task, at most so many seconds; tell whether it ended. It goes on otherwise.

    If the event loop was busy at the deadline, the answer may have arrived unnoticed: then the task
    gets as long again as the loop was late.
    """
    begun_at = time.monotonic()
    done_tasks, _ = await asyncio.wait({task}, timeout=seconds)
    if not done_tasks and seconds is not None:
        lateness = time.monotonic() - begun_at - seconds
        if lateness > BUSY_SECONDS:
            done_tasks, _ = await asyncio.wait({task}, timeout=lateness)
    return bool(done_tasks)


@contextlib.contextmanager
def told_of_connection(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` each time a work that is begun meanwhile has got its connection."""
    outer_callback = _on_connection.get()

    def tell_both() -> None:
        if outer_callback is not None:
            outer_callback()
        tell()

    token = _on_connection.set(tell_both)
    try:
        yield
    finally:
        _on_connection.reset(token)


def tell_of_connection() -> None:
    """Tell who waits that this work has got its connection."""
    if (tell := _on_connection.get()) is not None:
        tell()


@contextlib.asynccontextmanager
async def limit_from_connection(seconds: float) -> AsyncIterator[None]:
    """Limit a work on a shared store, from when it has a connection. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    is_waiting = seconds > 0
    async with asyncio.timeout(seconds + WAIT_SECONDS * is_waiting) as limit:

        def begin() -> None:
            nonlocal is_waiting
            # Not again, nor once the limit is over.
            if is_waiting:
                is_waiting = False
                limit.reschedule(loop.time() + seconds)

        with told_of_connection(begin):
            try:
                yield
            finally:
                is_waiting = False


async def gets_connection(task: asyncio.Future[Any], has_connection: asyncio.Event) -> bool:
    """Wait until a work has its connection, or has ended; tell whether that was in time."""
    if has_connection.is_set() or task.done():
        return True
    waiter = asyncio.create_task(has_connection.wait())
    try:
        await asyncio.wait(
            {task, waiter}, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        waiter.cancel()
    return has_connection.is_set() or task.done()
