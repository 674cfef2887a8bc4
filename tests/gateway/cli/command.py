"""The command as a user runs it: a process of its own, in a data folder of its own, with nothing of
this machine's settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.gateway.cli.forked import run_forked

ROOT = Path(__file__).parents[3]
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")


def environment(data: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in KEPT}
    return {
        **kept,
        "MNEMOGATE_DATA": str(data),
        "PYTHONUNBUFFERED": "1",
        "MNEMOGATE_STORAGE__VECTORS": "none",
        **more,
    }


def mnemogate(
    data: Path, *arguments: str, stdin: str | None = None, timeout: float = 60, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return run_forked(arguments, ROOT, environment(data, **env), stdin or "", timeout)


@contextlib.contextmanager
def spawned(data: Path, *command: str, **streams: int) -> Iterator[subprocess.Popen[str]]:
    """A child that is ended with the context. streams: `stdout` and `stderr`, as for Popen."""
    child = subprocess.Popen(
        command, cwd=ROOT, env=environment(data), stdin=subprocess.DEVNULL, text=True, **streams
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


class Process:
    """A command that keeps running; `lines` grows with what it prints. root: of its sources."""

    def __init__(self, data: Path, *arguments: str, root: Path = ROOT, **env: str) -> None:
        self.lines: list[str] = []
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=root,
            env=environment(data, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout
        self.lines.extend(line.rstrip("\n") for line in self.popen.stdout)

    def waited(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        """The first line that matches."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := re.search(pattern, "\n".join(self.lines), re.MULTILINE):
                return found
            if self.popen.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n" + "\n".join(self.lines))

    @property
    def url(self) -> str:
        return self.waited(r"Mnemogate serves (http://[\d.]+:\d+)/v1")[1]

    def stopped(self, sig: int = signal.SIGTERM, seconds: float = 20) -> int:
        self.popen.send_signal(sig)
        return self.popen.wait(seconds)


@contextlib.contextmanager
def started(data: Path, *arguments: str, root: Path = ROOT, **env: str) -> Iterator[Process]:
    process = Process(data, *arguments, root=root, **env)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait()
        process._reader.join(5)
        assert process.popen.stdout
        process.popen.stdout.close()
