"""The server processes that a bench starts: the mock, the floors, the gateway.

What they cost is read from the kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from pathlib import Path

from tests.sockets import free_port

ROOT = Path(__file__).parent.parent.parent
UVICORN = [
    "--host",
    "127.0.0.1",
    "--loop",
    "uvloop",
    "--http",
    "httptools",
    "--log-level",
    "warning",
    "--no-access-log",
]


class Subject:
    """A server process and where to reach it.

    env: over this process's. headers: on each request of a load.

    Starts at once. starts: seconds from exec to the first answered request, of each start.
    start_cpu: those of the process's CPU in the last. idle: MiB after it.
    """

    def __init__(
        self,
        name: str,
        module: list[str],
        port: int,
        env: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.name, self.url, self.headers = (
            name,
            f"http://127.0.0.1:{port}/v1/chat/completions",
            headers or {},
        )
        self.log = Path(tempfile.gettempdir()) / f"mnemogate-bench-{name}.log"
        self._command, self._env = [sys.executable, "-m", *module], {**os.environ, **(env or {})}
        self.data = Path(self._env.get("MNEMOGATE_STORAGE__DATA", "")) / "mnemogate.db"
        self.starts: list[float] = []
        self.start()

    def start(self) -> None:
        begun = time.perf_counter()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdout=out, stderr=out
            )
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() - begun > 30:
                self.stop()
                raise RuntimeError(f"{self.name} did not start, see {self.log}")
            time.sleep(0.01)
        self.starts.append(time.perf_counter() - begun)
        self.idle, self.start_cpu = self.resident(), self.cpu()

    def _answers(self) -> bool:
        body = json.dumps(
            {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
        ).encode()
        request = urllib.request.Request(
            self.url,
            body,
            {"content-type": "application/json", "authorization": "Bearer k", **self.headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except OSError:
            return False

    def restart(self) -> None:
        self.stop()
        self.start()

    def cpu(self) -> float:
        """Seconds, of all threads, by the kernel's own clock of the process
        (clock_getcpuclockid).
        """
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def resident(self) -> float:
        """MiB."""
        return (
            int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 2**20
        )

    def recorded(self) -> int:
        """Messages in the gateway's store; 0 where there is none."""
        if not self.data.is_file():
            return 0
        with closing(sqlite3.connect(f"file:{self.data}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM messages").fetchone()[0])

    async def indexed(self) -> None:
        """Wait until searches find everything that was recorded."""
        while self.data.is_file():
            with closing(sqlite3.connect(f"file:{self.data}?mode=ro", uri=True)) as db:
                (waiting,) = db.execute(
                    "SELECT count(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM messages_fts "
                    "WHERE rowid = m.id)"
                ).fetchone()
            if not waiting:
                return
            await asyncio.sleep(0.2)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


class Mock(Subject):
    """The upstream. Reached directly, it is what everything else adds to."""

    def __init__(self) -> None:
        port = free_port()
        self.base = f"http://127.0.0.1:{port}/v1"
        super().__init__("direct", ["tests.bench.mock", str(port)], port)

    def counted(self) -> tuple[int, list[float]]:
        """Chat calls since the last time it was asked, and how long each memory call's result took
        to come back, ms.
        """
        with urllib.request.urlopen(f"{self.base}/stats") as answer:
            told = json.loads(answer.read())
        return told["calls"], told["rounds_ms"]


def floor(name: str, mock: Mock, client: str) -> Subject:
    """client: httpx | aiohttp."""
    port = free_port()
    return Subject(
        name,
        ["uvicorn", "tests.bench.floor:app", "--port", str(port), *UVICORN],
        port,
        {"FLOOR_UPSTREAM": mock.base, "FLOOR_CLIENT": client},
    )


def gateway(
    name: str, mock: Mock, data: Path, headers: dict[str, str] | None = None, **settings: str
) -> Subject:
    """settings: over the defaults, as `section__name`."""
    port = free_port()
    env = {
        "MNEMOGATE_STORAGE__DATA": str(data),
        "MNEMOGATE_STORAGE__VECTORS": "none",
        "MNEMOGATE_UPSTREAM": mock.base,
        **{f"MNEMOGATE_{k.upper()}": v for k, v in settings.items()},
    }
    return Subject(name, ["gateway", "serve", "--port", str(port)], port, env, headers)
