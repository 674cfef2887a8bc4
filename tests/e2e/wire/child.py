"""A gateway in a process of its own, with a configuration file, whose every output is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.gateway.cli.command import ROOT, environment

MAIN = "from gateway.cli.main import main; main()"
# What an operator gets who turns every logger up: the root at DEBUG, to stderr.
DEBUG = f"import logging; logging.basicConfig(level=logging.DEBUG); {MAIN}"


class Child:
    """url: where it serves. log: stdout and stderr, in one file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self.log = process, log
        self.url, self._from = "", 0

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    async def waited(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        """The first place in the log that matches."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := re.search(pattern, self.said[self._from :]):
                return found
            assert self.process.returncode is None, self.said
            await asyncio.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{self.said}")

    async def reloaded(self, pattern: str) -> None:
        """Sends SIGHUP and waits for what it says."""
        self._from = len(self.said)
        self.process.send_signal(signal.SIGHUP)
        await self.waited(pattern, 10)

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def child(
    folder: Path, config: str, *, code: str = "", **env: str
) -> AsyncIterator[tuple[Child, httpx.AsyncClient]]:
    """`mnemogate serve` on a file with this text, in `folder`; a client for it.

    Its data is in folder/data. code: run in place of the command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gateway.toml").write_text(config)
    log = folder / "log"
    command = ["-c", code] if code else ["-m", "gateway"]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "serve",
            "--config",
            str(folder / "gateway.toml"),
            "--port",
            "0",
            cwd=ROOT,
            env=environment(folder / "data", **env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    started = Child(process, log)
    try:
        started.url = (await started.waited(r"Mnemogate serves (http://[\d.]+:\d+)/v1"))[1]
        async with httpx.AsyncClient(base_url=started.url, timeout=20) as client:
            yield started, client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def settled(client: httpx.AsyncClient) -> Any:
    """The first answer of /ready that says ok."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (answer := (await client.get("/ready")).json())["status"] == "ok":
                    return answer
            await asyncio.sleep(0.02)
