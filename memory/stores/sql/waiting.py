"""Waits for the store without blaming it for a busy event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

BUSY_SECONDS = 0.01  # how late a busy process may notice a deadline


async def ends_within(task: asyncio.Future[Any], seconds: float | None) -> bool:
    """Wait for a task, at most so many seconds; tell whether it ended. It goes on otherwise.

    If the event loop was busy at the deadline, the answer may have arrived unnoticed: then the task
    gets as long again as the loop was late.
    """
    begun = time.monotonic()
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done and seconds is not None:
        late = time.monotonic() - begun - seconds
        if late > BUSY_SECONDS:
            done, _ = await asyncio.wait({task}, timeout=late)
    return bool(done)
