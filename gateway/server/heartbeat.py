"""The clock of reflections: now and then it looks which are due, and queues them.

While no configuration and no profile sets a clock, nothing is read and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.state import GatewayState
from memory import MemoryFault, management

log = logging.getLogger("mnemogate")
TICK_SECONDS = 15.0


async def keep_time(current: Callable[[], GatewayState]) -> None:
    """Queue what is due, for ever. current: the state, which a reload replaces."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            await queue_due_reflections(current())
        except MemoryFault as e:
            log.warning("reflections wait for the store: %s", e)
        except Exception:
            # A defect here must not end the clock.
            log.exception("reflections that are due could not be queued")


async def queue_due_reflections(gateway: GatewayState) -> int:
    """Queue the reflections that are due; return their number. Raises StoreUnavailable."""
    if not await gateway.agents.has_clock():
        return 0
    find_plan = gateway.agents.find_reflection_plan
    count = await management.reflections.queue_due(gateway.memory, find_plan)
    if count:
        gateway.worker.wake()
    return count
