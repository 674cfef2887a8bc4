"""What a turn costs the gateway on Postgres: CPU over SQLite's, and how long the server is waited
for.

Three gateways in turn, round after round: on SQLite, on Postgres, and two workers on Postgres; the
last two with Redis, since workers need it. Conversations as in `chat`; the next turn of each after
a restart is the cold one. Then one worker and two get the same turns at the same rate. Last, a
proxy before Postgres answers 10 ms late, and streams tell how much later the upstream began.
CPU is that of the gateway's processes alone.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from sqlalchemy.engine import make_url

from tests.bench.load import OPENING, Connection, Load, Result, Shape, Talk
from tests.bench.scenarios import measured, middle, played, talks
from tests.bench.subjects import Mock, Subject
from tests.postgres_server import postgres_server
from tests.redis_server import RedisServer
from tests.sockets import free_port

SECRET = b"\x52" * 32
# Seconds that the server's answers are held back.
LATE = 0.010
# Turns a second.
RATE, STEADY = 80, Shape(users=16, conversations=64, turns=12)
STREAMS = Shape(users=1, conversations=6, turns=9, stream=True)
SETTINGS = {
    "storage__vectors": "none",
    "memory__recall": "tools",
    "memory__extract": "off",
    "memory__read_deadline_ms": "10000",
    "server__single_user": "false",
}
Told = Callable[[str], None]
Runs = dict[str, list[Result]]


class Gateway(Subject):
    """A gateway on some database, with so many workers."""

    def __init__(self, name: str, mock: Mock, data: Path, workers: int = 1, **more: str) -> None:
        port = free_port()
        named = {**SETTINGS, "upstream": mock.base, "storage__data": str(data), **more}
        env = {f"MNEMOGATE_{key.upper()}": value for key, value in named.items()}
        command = ["gateway", "serve", "--port", str(port)]
        if workers > 1:
            command += ["--workers", str(workers)]
        super().__init__(name, command, port, env)

    def cpu(self) -> float:
        """Seconds of all its processes."""
        pids, at = [self.process.pid], 0
        while at < len(pids):
            for task in Path(f"/proc/{pids[at]}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
            at += 1
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


class SteadyLoad(Load):
    """Turns that begin at a rate, whatever the server does."""

    def __init__(self, url: str, headers: dict[str, str], rate: float) -> None:
        super().__init__(url, headers)
        self._apart, self._next = 1 / rate, 0.0

    async def play(self, talks: Iterable[Talk], users: int, until: int) -> Result:
        self._next = time.perf_counter()
        return await super().play(talks, users, until)

    async def _turn(self, connection: Connection, talk: Talk, result: Result) -> None:
        self._next += self._apart
        await asyncio.sleep(max(0.0, self._next - time.perf_counter()))
        await super()._turn(connection, talk, result)


class LateServer:
    """A proxy before Postgres, in a thread of its own. late: seconds it holds answers back."""

    def __init__(self, url: str, late: float) -> None:
        self._target, self._late = make_url(url), late
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._target.set(port=port).render_as_string(hide_password=False)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        carrying = asyncio.all_tasks() - {asyncio.current_task()}
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._target.host, self._target.port)
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_carry(reader, there[1], 0), _carry(there[0], writer, self._late))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        if late:
            loop.call_later(late, writer.write, data)
        else:
            writer.write(data)
    loop.call_later(late, writer.close)


@dataclass(frozen=True, slots=True)
class Delay:
    """In ms. round_trip: to the server. first: to a stream's first event, warm."""

    round_trip: float
    first: float


def main(rounds: int, told: Told) -> dict[str, Any]:
    """Play everything; return the figures by subject."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemogate-cpu-")))
        server, redis = stack.enter_context(postgres_server(safe=True)), RedisServer(folder)
        redis.start()
        stack.callback(redis.stop)
        mock = Mock()
        stack.callback(mock.stop)

        def on_postgres(workers: int = 1, url: str = "") -> dict[str, str]:
            more = {"storage__redis": redis.url} if workers else {}
            found = url or server.database(SECRET)
            return {"storage__database": found, "storage__secret": SECRET.hex(), **more}

        subjects = [
            Gateway("sqlite", mock, folder / "sqlite"),
            Gateway("postgres", mock, folder / "postgres", **on_postgres(0)),
            Gateway("one worker", mock, folder / "one", **on_postgres()),
            Gateway("two workers", mock, folder / "two", 2, **on_postgres()),
        ]
        for subject in subjects:
            stack.callback(subject.stop)
        runs = uvloop.run(_compare(mock, subjects, rounds, told))
        delays = {}
        for name, late in (("near", 0.0), ("far", LATE)):
            proxy = LateServer(server.database(SECRET), late)
            stack.callback(proxy.stop)
            told(f"the server {name}")
            gateway = Gateway(name, mock, folder / name, **on_postgres(0, proxy.url))
            stack.callback(gateway.stop)
            delays[name] = uvloop.run(_delay(mock, gateway, proxy.url))
    figures = {name: middle([r.figures() for r in found]) for name, found in runs.items()}
    return {"cpu": figures, "delay": {name: (d.round_trip, d.first) for name, d in delays.items()}}


async def _compare(mock: Mock, subjects: Sequence[Subject], rounds: int, told: Told) -> Runs:
    runs: Runs = {}
    for i in range(rounds):
        for subject in subjects:
            told(f"round {i + 1} of {rounds}, {subject.name}")
            if "worker" in subject.name:
                runs.setdefault(subject.name, []).append(await _steadily(mock, subject))
                continue
            cold = f"{subject.name}, cold"
            for name, result in (await played(mock, subject, "chat", cold)).items():
                runs.setdefault(name, []).append(result)
    return runs


async def _steadily(mock: Mock, subject: Subject) -> Result:
    """Play turns at the rate."""
    found = talks("steady", STEADY)
    load = SteadyLoad(subject.url, subject.headers, RATE)
    await load.play(found, STEADY.users, OPENING)
    cpu = subject.cpu()
    result = await load.play(found, STEADY.users, STEADY.turns)
    result.cpu = subject.cpu() - cpu
    return result


async def _delay(mock: Mock, subject: Subject, url: str) -> Delay:
    raw = await asyncpg.connect(url.replace("+asyncpg", ""))
    taken = []
    for _ in range(30):
        begun = time.perf_counter()
        await raw.fetchval("SELECT 1")
        taken.append((time.perf_counter() - begun) * 1e3)
    await raw.close()
    found = talks("delayed", STREAMS)
    await Load(subject.url, subject.headers).play(found, STREAMS.users, OPENING)
    result = await measured(mock, subject, found, STREAMS.users, STREAMS.turns)
    return Delay(statistics.median(taken), statistics.median(result.firsts))


def report(found: dict[str, Any]) -> str:
    """Return the tables."""
    cpu, (near, far) = found["cpu"], found["delay"].values()
    lines = [f"\n{'CPU of the gateway, us a turn':30} {'median':>8} {'range':>16} {'warm':>6}"]
    for name, f in cpu.items():
        low, high = f["cpu_range"]
        span = f"{low:,.0f}-{high:,.0f}"
        lines.append(f"{name:30} {f['cpu_us']:8,.0f} {span:>16} {f['warm']:6.2f}")
    ratios = (
        ("warm on Postgres, over SQLite's", 1.25, "postgres", "sqlite"),
        ("cold on Postgres, over warm", 2.5, "postgres, cold", "postgres"),
        (f"two workers over one, {RATE} turns a second", 1.15, "two workers", "one worker"),
    )
    lines.append(f"\n{'':50} {'measured':>9} {'must':>6}")
    for title, must, over, under in ratios:
        ratio = cpu[over]["cpu_us"] / cpu[under]["cpu_us"]
        lines.append(f"{title:50} {ratio:9.2f} {must:6.2f}  {'' if ratio <= must else 'NOT MET'}")
    more, trip = far[1] - near[1], far[0] - near[0]
    said = "" if more <= trip + 1 else "NOT MET"
    title = f"ms to the first event, {trip:.1f} ms from the server"
    lines.append(f"{title:50} {more:9.2f} {trip + 1:6.2f}  {said}")
    errors = sum(f["errors"] for f in cpu.values())
    return "\n".join([*lines, f"errors: {errors}"])
