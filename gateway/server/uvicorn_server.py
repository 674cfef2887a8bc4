"""The server process: binds at once, drains on SIGTERM, exits 0."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import uvicorn

from gateway.server.garbage import begin_searches
from gateway.server.http_protocol import GuardedProtocol
from gateway.server.middleware import GatewayMiddleware
from gateway.server.worker_threads import WorkerThreads
from gateway.state import ServerState

log = logging.getLogger("mnemogate")
Beside = Callable[[], Coroutine[Any, Any, None]]
GRACE_AFTER_CUT = 3.0
# Of an idle connection: longer than balancers keep theirs (60 s), so that a request is never sent
# on one that is being closed.
KEPT_SECONDS = 75
# Of glibc's malloc.h.
M_ARENA_MAX = -8
# Of malloc: blocks from this size on are mappings of their own, which go back to the system when
# they are freed. Left alone, glibc raises it up to 32 MiB, and large bodies leave holes behind.
M_MMAP_THRESHOLD = -3
MAPPED_BYTES = 1 << 20
# Free memory at the end of the heap.
M_TRIM_THRESHOLD, TRIMMED_BYTES = -1, 4 << 20
# How long a busy thread may keep the event loop waiting.
SWITCH_SECONDS = 0.001
# Send buffer of one client in bytes; the kernel doubles it.
UNSENT = 1 << 17


class GatewayServer(uvicorn.Server):
    """uvicorn, with a drain before shutdown.

    A signal turns readiness off; new requests are refused, running responses finish within the
    limit.

    reread: awaited on each SIGHUP, one after the other; without it a SIGHUP ends the process, as
    usual. stop_event: set by a signal that arrived before the server could handle one. side_task:
    run once while the server runs.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        front: GatewayMiddleware,
        reread: Callable[[], Awaitable[None]] | None = None,
        stop_event: threading.Event | None = None,
        side_task: Beside | None = None,
    ) -> None:
        super().__init__(config)
        self._side_task = side_task
        self._front = front
        self._reread = reread
        self._stop_event = stop_event
        self._drain: asyncio.Task[None] | None = None
        self._reloads: set[asyncio.Task[None]] = set()
        self._one_rereads = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        # The loop would note each generator that begins, to close those that are left at the end:
        # responses close theirs, and a note costs as much as some steps of them.
        sys.set_asyncgen_hooks(firstiter=None)
        self._loop.set_default_executor(WorkerThreads(SWITCH_SECONDS))
        task = None
        if self._side_task is not None:
            task = asyncio.ensure_future(self._side_task())
        await super().serve(sockets)
        if task is not None and not task.cancel() and (error := task.exception()) is not None:
            log.error("the task that runs beside the server failed", exc_info=error)
        if busy_requests := self._process.busy:
            log.warning("Mnemogate has stopped; %d requests were cut off", busy_requests)
        else:
            log.info("Mnemogate has stopped")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Unread data waits in the kernel, up to 4 MiB a stream by default, and an answer with
        # memory is recorded as far as it was sent. Accepted sockets inherit the size from the
        # listening socket.
        for listening in (listener for server in self.servers for listener in server.sockets):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)

    @property
    def _process(self) -> ServerState:
        return self._front.gateway.process

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Unlike in uvicorn, the signals are not raised again at the end: a drained server exits 0.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self.handle_exit) for s in (signal.SIGINT, signal.SIGTERM)}
        if self._reread is not None and hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._request_reload)
        if self._stop_event is not None and self._stop_event.is_set():
            self.drain()
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second signal does not wait.
        if self._process.draining:
            self.should_exit = self.force_exit = True
            return
        self.drain()

    def _request_reload(self, sig: int, frame: FrameType | None) -> None:
        assert self._loop is not None  # noqa: S101 - signals are taken while the loop runs
        self._loop.call_soon_threadsafe(self._begin_reload)

    def _begin_reload(self) -> None:
        task = asyncio.ensure_future(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        assert self._reread is not None  # noqa: S101 - else there is no handler
        try:
            async with self._one_rereads:
                await self._reread()
        except Exception:
            # A task of a signal, which nobody awaits.
            log.exception("the configuration was not reloaded; the running one stays in force")

    def drain(self) -> None:
        """Start to drain; safe to call from any thread once the server runs."""
        self._process.draining = True
        # set once the server runs
        assert self._loop is not None  # noqa: S101
        self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        log.info(
            "Mnemogate is shutting down: %d requests in progress have %g s to finish",
            self._process.busy,
            self._front.gateway.settings.server.drain_seconds,
        )
        self._drain = asyncio.ensure_future(self._wait_and_exit())

    async def _wait_and_exit(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._front.gateway.settings.server.drain_seconds
        await self._idle(until)
        for answer in list(self._process.live):
            answer.abort_for_shutdown()
        ending = loop.time() + GRACE_AFTER_CUT
        await self._idle(ending)
        self.should_exit = True

    async def _idle(self, until: float) -> None:
        """Wait until no request is in progress, or until the loop's time `until`."""
        # polling is cheaper than an event on every request
        while self._process.busy and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def config_for(app: GatewayMiddleware, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for this application.

    options: more of uvicorn's options.
    """
    server = app.gateway.settings.server
    return uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        http=GuardedProtocol,
        # uvicorn would take upgrades by itself once a package brings `websockets`, as Chroma does.
        ws="none",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=2,
        proxy_headers=False,
        **options,
    )


def server_for(
    app: GatewayMiddleware,
    *,
    log_level: str = "warning",
    log_config: Any = uvicorn.config.LOGGING_CONFIG,
    **options: Any,
) -> GatewayServer:
    """Return a server that is not running yet.

    log_config: uvicorn's. options: see `GatewayServer`.
    """
    return GatewayServer(
        config_for(app, log_level=log_level, log_config=log_config), app, **options
    )


def use_one_heap() -> None:
    """Make threads started from now on share one malloc heap instead of one each.

    They take turns, so none waits for another, and memory freed by one is reused by the next. With
    a heap each, the process took 2 MiB more and kept growing. Large blocks are given back.
    """
    # Not glibc.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 1)
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES)


def serve(
    app: GatewayMiddleware, sockets: list[socket.socket] | None = None, **options: Any
) -> None:
    """Run the server until a signal ends it.

    sockets: already bound; None binds the configured host and port. options: see `server_for`.
    """
    # Objects made at the start live as long as the process: to scan them again and again took a
    # sixth of every request's time.
    begin_searches()
    sys.setswitchinterval(SWITCH_SECONDS)
    use_one_heap()
    server_for(app, **options).run(sockets)
