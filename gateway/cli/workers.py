"""`mnemogate serve --workers N`: a parent that starts, watches and drains N workers on one port.

The parent answers no request. Each worker listens for itself, and the kernel spreads connections.
A worker that dies is started again; one whose parent is gone ends in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway.cli.options import CommandFailed

if TYPE_CHECKING:
    from gateway.config.settings import Settings

log = logging.getLogger("mnemogate")
# Before a dead worker is started again.
BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS = 0.1, 5.0
# As many in so long, and the parent gives up.
RESTARTS, RESTART_SECONDS = 10, 60.0
POLL_SECONDS = 0.1
# Behind the drain.
KILL_SECONDS = 15.0
METRICS = "PROMETHEUS_MULTIPROC_DIR"


def check_workers(settings: Settings, count: int) -> None:
    """Raise CommandFailed, with the next step, if several workers could not be right here."""
    storage = settings.storage
    why = ""
    if not storage.is_postgres:
        why = (
            "the memory is one SQLite file, which only one worker can serve. Set storage.database "
            "to postgresql+asyncpg://... and storage.redis, or run one gateway per data folder."
        )
    elif not storage.redis:
        why = (
            "each worker would count limits and budgets for itself. Set storage.redis to "
            "redis://..., or leave the option out."
        )
    elif settings.memory.embedder != "none" and storage.vectors == "chroma:embedded":
        why = (
            "the embedded vector store has one process. Set storage.vectors to "
            "chroma:http://..., or to none."
        )
    elif not hasattr(socket, "SO_REUSEPORT"):
        why = "this system cannot share a port. Run one gateway per port."
    if why:
        raise CommandFailed(f"--workers {count}: {why}", exit_code=2)


def bind_shared(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port which others may share, and does not listen yet.

    Raises CommandFailed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError as e:
        raise CommandFailed(
            f"{host}:{port} cannot be opened: {e.strerror}. Choose another --host or --port."
        ) from e
    return sock


def end_with_parent() -> None:
    """Drain when the parent is gone: its end of this process's input closes with it."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


class WorkerProcesses:
    """The workers of one parent.

    command: starts one. drain_seconds: for its requests to finish. reread: checks on SIGHUP whether
    the configuration can be reloaded.
    """

    def __init__(
        self, command: Sequence[str], count: int, drain_seconds: float, reread: Callable[[], bool]
    ) -> None:
        self._command = command
        self._drain_seconds = drain_seconds
        self._reread = reread
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        # When each is to be started.
        self._due = [0.0] * count
        self._pause = BACK_OFF_SECONDS
        self._deaths: deque[float] = deque(maxlen=RESTARTS)
        self._signals = 0
        self._reloading = False

    def run(self) -> int:
        """Run the workers until a signal ends them; return the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, self._on_reload)
        with tempfile.TemporaryDirectory(prefix="mnemogate-metrics-") as folder:
            environment = {METRICS: folder, **os.environ}
            code = 0
            try:
                while not self._signals and not code:
                    code = self._watch(environment)
                    time.sleep(POLL_SECONDS)
            finally:
                self._end()
        return code

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _on_reload(self, *_: object) -> None:
        self._reloading = True

    def _watch(self, environment: dict[str, str]) -> int:
        """Start what is to be started; return an exit code if it is of no use."""
        now = time.monotonic()
        for index, child in enumerate(self._children):
            if child is not None and (status := child.poll()) is not None:
                self._children[index] = None
                if (code := self._note_death(index, child.pid, status)) != 0:
                    return code
            elif child is None and now >= self._due[index]:
                self._children[index] = self._start(environment)
        if self._reloading:
            self._reloading = False
            if self._reread():
                self._send(signal.SIGHUP)
        return 0

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # A session of its own: a Ctrl-C is for the parent, which drains the workers.
        return subprocess.Popen(  # noqa: S603 - this very command
            self._command, stdin=subprocess.PIPE, env=environment, start_new_session=True
        )

    def _note_death(self, index: int, pid: int, status: int) -> int:
        """Decide when a worker is started again; return an exit code if it is not."""
        # It has said why it cannot start.
        if status == 2:
            return 2
        now = time.monotonic()
        is_first_lately = not self._deaths or now - self._deaths[-1] > RESTART_SECONDS
        if is_first_lately:
            self._pause = BACK_OFF_SECONDS
        else:
            self._pause = min(2 * self._pause, MAX_BACK_OFF_SECONDS)
        self._deaths.append(now)
        if len(self._deaths) == RESTARTS and now - self._deaths[0] < RESTART_SECONDS:
            log.error("%d workers died within %g s: giving up", RESTARTS, RESTART_SECONDS)
            return 1
        log.warning(
            "worker %d (process %d) died with status %d; another starts in %.1f s",
            index,
            pid,
            status,
            self._pause,
        )
        self._due[index] = now + self._pause
        return 0

    def _send(self, number: signal.Signals) -> None:
        for child in self._list_running():
            child.send_signal(number)

    def _list_running(self) -> list[subprocess.Popen[bytes]]:
        return [c for c in self._children if c is not None and c.poll() is None]

    def _end(self) -> None:
        """Drain the workers; a second signal does not wait."""
        signals_seen = self._signals
        until = time.monotonic() + self._drain_seconds + KILL_SECONDS
        self._send(signal.SIGTERM)
        while self._list_running() and time.monotonic() < until:
            if self._signals > max(signals_seen, 1):
                signals_seen = self._signals
                self._send(signal.SIGTERM)
            time.sleep(POLL_SECONDS / 2)
        for child in filter(None, self._children):
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()


def command_of(argv: Sequence[str], port: int) -> list[str]:
    """Return what starts one worker: this command, on the port that was taken."""
    return [sys.executable, "-m", "gateway", *argv, "--port", str(port), "--as-worker"]
