"""Start-up and shutdown: open the memory in the background, close everything in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from functools import partial

from gateway.server.device_memory import add_device_memories
from gateway.server.garbage import keep_for_good
from gateway.server.heartbeat import keep_time
from gateway.server.hidden_agents import tell_of_hidden_agents
from gateway.state import CurrentState, GatewayState
from gateway.storage.key_probe import NONE
from gateway.telemetry.metrics import close_metrics
from gateway.upstream.base import Transport
from memory import MemoryFault

log = logging.getLogger("mnemogate")

OPENING_SECONDS = 1.0
# Before a memory that could not be opened is tried again.
AGAIN_SECONDS = 2.0
# If the store is slower, its keys get 503 until it was read.
KEYS_SECONDS = 2.0
# For each step of the shutdown.
STEP_SECONDS = 4.0


@contextlib.asynccontextmanager
async def run(current_state: CurrentState, transports: Iterable[Transport]) -> AsyncIterator[None]:
    """Keep the gateway running: its memory and its background work.

    transports: closed when it ends; reloads may add some.
    """
    gateway = current_state.gateway
    if gateway.shared is not None:
        # Before the first request, which would otherwise be counted in this process only.
        await gateway.shared.open()
    gateway.memory.before_ready.append(partial(add_device_memories, gateway))
    opening = asyncio.create_task(_open(current_state), name="opening")
    if gateway.settings.key_counts != NONE:
        # Connections wait meanwhile, so that the first clients after a restart get no error.
        await gateway.keys.key_store.wait_until_read(KEYS_SECONDS)
    try:
        yield
    finally:
        # Let a store that is being opened finish, so that it can be closed; a store
        # that does not open in time is given up.
        await asyncio.wait([opening], timeout=OPENING_SECONDS)
        opening.cancel()
        # A reload made some of what is to be closed.
        await _close(current_state.gateway, transports)


async def _open(current_state: CurrentState) -> None:
    """Open the memory, as often as it takes, and start what needs it."""
    gateway = current_state.gateway
    logged_text = ""
    while True:
        try:
            await gateway.memory.open()
            _start_background_work(gateway)
            await gateway.toolbox.shared.start()
            await gateway.toolbox.tenant_tools.read_quietly()
            await tell_of_hidden_agents(gateway)
            if gateway.stored is not None:
                booking = gateway.stored.book(lambda: current_state.gateway)
                gateway.process.jobs.add(asyncio.create_task(booking, name="booking"))
            if gateway.settings.server.jobs:
                clock = keep_time(lambda: current_state.gateway)
                gateway.process.jobs.add(asyncio.create_task(clock, name="heartbeat"))
            keep_for_good()
            return
        except MemoryFault as e:
            if str(e) != logged_text:
                logged_text = str(e)
                # no traceback: the message is complete
                log.error("memory is unavailable: %s", e)  # noqa: TRY400
        except Exception as e:
            # Whatever it is, the gateway serves without memory and tries again.
            if repr(e) != logged_text:
                logged_text = repr(e)
                log.exception("memory cannot be opened; trying again")
        await asyncio.sleep(AGAIN_SECONDS)


def _start_background_work(gateway: GatewayState) -> None:
    if gateway.settings.server.jobs:
        gateway.worker.start()
    gateway.usage.start()
    gateway.keys.key_store.start()


async def _close(gateway: GatewayState, transports: Iterable[Transport]) -> None:
    """Close everything in order, each step within a few seconds."""
    if gateway.shared is not None:
        shared = [gateway.shared.close]
    else:
        shared = []
    if gateway.traces is not None:
        traces = [gateway.traces.close]
    else:
        traces = []
    for job in list(gateway.process.jobs):
        job.cancel()
    for step in (
        gateway.keys.key_store.stop,
        gateway.worker.stop,
        gateway.usage.stop,
        gateway.responses.close,
        gateway.toolbox.close,
        gateway.memory.close,
        *shared,
        *traces,
        *(w.aclose for w in transports),
        close_metrics,
    ):
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await step()
        except TimeoutError:
            log.warning(
                "shutdown: %s did not end within %g s; continuing without it",
                step.__qualname__,
                STEP_SECONDS,
            )
        except Exception:
            # The steps after it still have to run: they write what is queued.
            log.exception("shutdown: %s failed; continuing", step.__qualname__)
