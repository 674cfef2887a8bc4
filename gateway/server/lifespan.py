"""Open the memory in the background once the port is bound; close everything in its order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from litestar import Litestar

from gateway.state import GatewayState
from gateway.storage.key_probe import NONE
from gateway.upstream.base import Wire
from memory import MemoryFault

if TYPE_CHECKING:
    pass

log = logging.getLogger("mnemogate")

OPENING_SECONDS = 1.0


AGAIN_SECONDS = 2.0  # until a memory that could not be opened is tried again


KEYS_SECONDS = 2.0  # a store that is slower has its keys refused with 503 until it was read


STEP_SECONDS = 4.0  # for each step of shutting down: none may hold the process


def on_startup(gateway: GatewayState) -> Any:
    async def start(app: Litestar) -> None:
        async def work() -> None:
            told = ""
            while True:
                try:
                    await gateway.memory.open()
                    gateway.worker.start()
                    gateway.usage.start()
                    gateway.keys.made.start()
                    return
                except MemoryFault as e:
                    if str(e) != told:
                        told = str(e)
                        # the message says it all
                        log.error("memory is unavailable: %s", e)  # noqa: TRY400
                except Exception as e:
                    if repr(e) != told:
                        told = repr(e)
                        log.exception("memory cannot be opened; trying again")
                await asyncio.sleep(AGAIN_SECONDS)

        if gateway.shared is not None:
            await (
                gateway.shared.open()
            )  # before the first request, which would be counted here alone
        app.state.opening = asyncio.create_task(work())
        if gateway.settings.key_counts != NONE:
            await gateway.keys.made.wait_until_read(
                KEYS_SECONDS
            )  # connections wait meanwhile: refused, the first clients after a restart would see it

    return start


def on_shutdown(gateway: GatewayState, wires: Iterable[Wire]) -> Any:
    async def stop(app: Litestar) -> None:
        # What is being opened is opened to its end, so that there is one thing to close; a store
        # that cannot be opened is given up.
        await asyncio.wait([app.state.opening], timeout=OPENING_SECONDS)
        app.state.opening.cancel()
        shared = [gateway.shared.close] if gateway.shared is not None else []
        for step in (
            gateway.keys.made.stop,
            gateway.worker.stop,
            gateway.usage.stop,
            gateway.memory.close,
            *shared,
            *(w.aclose for w in wires),
        ):
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await step()
            except TimeoutError:
                log.warning(
                    "%s did not end within %g s of shutting down; going on without it",
                    step.__qualname__,
                    STEP_SECONDS,
                )
            except Exception:
                log.exception(
                    "%s failed while shutting down; going on without it", step.__qualname__
                )

    return stop
