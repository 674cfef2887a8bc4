"""What a dimension is played on: a gateway in a process of its own, an upstream that answers as
told, and a prober beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import uvloop

from tests.bench.freeze.dimensions import Dimension, Exchange
from tests.bench.subjects import ROOT, Mock, Subject
from tests.sockets import free_port

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"transfer-encoding: chunked", re.IGNORECASE)
# Seconds after an answer in which work put off until then still counts.
SETTLE = 0.3
# Seconds over which the prober's own cost is measured.
WATCHED = 3.0
# Of a core.
IDLE = 0.25
READ_SECONDS = 180.0
CONFIG = """
[server]
port = {port}
[storage]
data = "{data}"
vectors = "none"
[providers.odd]
base_url = "{odd}"
[providers.mock]
base_url = "{mock}"
[providers.translated]
kind = "anthropic"
base_url = "{odd}"
[models.probe]
targets = [{{ provider = "mock" }}]
[models.translated]
targets = [{{ provider = "translated" }}]
[providers.native]
base_url = "{odd}"
wires = ["chat", "responses"]
[providers.chats]
base_url = "{odd}"
wires = ["chat"]
[models.bridged]
targets = [{{ provider = "chats" }}]
[models.speaks]
targets = [{{ provider = "native" }}]
[models.alias]
targets = [{{ provider = "odd", model = "real" }}]
[models."*"]
targets = [{{ provider = "odd" }}]
[memory]
explain_days = 1
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one exchange came to.

    waits: the worst of others, seconds, by what was asked. cpu: seconds of the gateway's process,
    less what the prober costs all the while. grown: bytes by which its peak passed what was
    resident before.
    """

    size: int
    status: int
    memory: str
    took: float
    cpu: float
    grown: int
    waits: dict[str, float]

    @property
    def held(self) -> float:
        """The worst wait of others, seconds, less what the machine itself was late by."""
        worst = max(self.waits.get("health", 0.0), self.waits.get("chat", 0.0))
        return max(0.0, worst - self.waits.get("machine", 0.0))

    @property
    def share(self) -> float:
        """What the gateway had of a core: on a busy machine everybody waits longer by that."""
        return min(1.0, self.cpu / self.took)


class OddUpstream:
    """A server of its own thread that reads requests without looking at them and sends what it was
    given.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.answers: list[list[bytes]] = []
        self.requests = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=uvloop.run, args=(self._listen(),), daemon=True)
        self._thread.start()
        self._ready.wait(10)

    async def _listen(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
        self._ready.set()
        await self._over.wait()
        server.close()

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                left = int(found[1]) if (found := LENGTH.search(head)) else 0
                while CHUNKED.search(head) and (size := int(await reader.readline(), 16)):
                    await reader.readexactly(size + 2)
                while left:
                    left -= len(await reader.read(min(left, 1 << 20)))
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                self.requests += 1
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
                if b"connection: close" in answer[0]:
                    break
        except (asyncio.IncompleteReadError, OSError):
            # The gateway left.
            pass
        finally:
            writer.close()


class Stage:
    """Starts everything at `with`, and stops it after."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def __enter__(self) -> Stage:
        self.mock, self.odd, port = Mock(), OddUpstream(), free_port()
        self._data.mkdir(parents=True, exist_ok=True)
        config = self._data / "gateway.toml"
        config.write_text(
            CONFIG.format(
                port=port,
                data=self._data / "store",
                odd=f"http://127.0.0.1:{self.odd.port}/v1",
                mock=self.mock.base,
            )
        )
        self.odd.answers = [[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]]
        self.port = port
        self.gateway = Subject(
            "freeze",
            ["gateway", "serve", "--config", str(config)],
            port,
            headers={"x-memory": "off"},
        )
        self.prober = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.freeze.prober", str(port)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.5)
        self.waits()
        self.usual = 0.0
        self.settle()
        self.usual = self._share(WATCHED)
        self.waits()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.prober.kill()
        self.prober.communicate()
        self.gateway.stop()
        self.odd.stop()
        self.mock.stop()

    def waits(self) -> dict[str, float]:
        """The worst waits of others since this was last asked, seconds."""
        assert self.prober.stdin is not None
        assert self.prober.stdout is not None
        self.prober.stdin.write("\n")
        self.prober.stdin.flush()
        return dict(json.loads(self.prober.stdout.readline()))

    def play(self, dimension: Dimension, size: int, *, settle: bool = True) -> Outcome:
        """Plays a dimension at a size. settle: waits until the gateway is idle again."""
        exchange = dimension.play(size)
        self.odd.answers = list(exchange.answers)
        request = written(exchange, self.port, self._key(exchange.path))
        self.waits()
        before, resident, begun = self.gateway.cpu(), self.peak(reset=True), time.perf_counter()
        status, memory = self.exchange(request)
        took = time.perf_counter() - begun
        if settle:
            self.settle()
        return Outcome(
            size,
            status,
            memory,
            took,
            max(0.0, self.gateway.cpu() - before - self.usual * (time.perf_counter() - begun)),
            self.peak() - resident,
            self.waits(),
        )

    def _key(self, path: str) -> str:
        """The local token where the memory itself is asked, any key else."""
        if not path.startswith("/memory/"):
            return "k"
        return (self._data / "store" / "token").read_text().strip()

    def settle(self) -> None:
        """Waits for what the gateway put off until after its answer: until it uses a quarter of a
        core at most besides what the prober costs.
        """
        for _ in range(30):
            if self._share(SETTLE) - self.usual < IDLE:
                return

    def _share(self, seconds: float) -> float:
        """What the gateway uses of a core for so long."""
        before, begun = self.gateway.cpu(), time.perf_counter()
        time.sleep(seconds)
        return (self.gateway.cpu() - before) / (time.perf_counter() - begun)

    def peak(self, *, reset: bool = False) -> int:
        """The gateway's peak of resident bytes; what is resident now where it is reset."""
        process = Path(f"/proc/{self.gateway.process.pid}")
        if reset:
            (process / "clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
        return int(found[1]) * 1024 if found else 0

    def exchange(self, request: bytes) -> tuple[int, str]:
        """Sends a request and reads its answer to the end.

        Returns the status, 0 for none, and what it says of the memory.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=READ_SECONDS) as wire:
            head = bytearray()
            # It may answer before it has read everything.
            with contextlib.suppress(OSError):
                wire.sendall(request)
            with contextlib.suppress(OSError):
                while data := wire.recv(1 << 20):
                    if len(head) < 1 << 16:
                        head += data
        found = re.match(rb"HTTP/1.1 (\d+)", head)
        memory = re.search(rb"x-memory-status: (\w+)", bytes(head), re.IGNORECASE)
        return int(found[1]) if found else 0, memory[1].decode() if memory else ""


def written(exchange: Exchange, port: int, key: str = "k") -> bytes:
    """The request as bytes, on a connection of its own."""
    packed = exchange.gzip or exchange.packed
    body = exchange.packed or (gzip.compress(exchange.body, 6) if packed else exchange.body)
    headers = [
        ("host", f"127.0.0.1:{port}"),
        ("authorization", f"Bearer {key}"),
        ("content-type", exchange.kind),
        ("connection", "close"),
        *([] if exchange.behind else [("content-length", str(len(body)))]),
        *([("content-encoding", "gzip")] if packed else []),
        *exchange.headers,
    ]
    head = (
        f"POST {exchange.path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers) + "\r\n"
    )
    if exchange.behind:
        body = b"%x\r\n%b\r\n%b" % (len(body), body, exchange.behind)
    return head.encode() + body
