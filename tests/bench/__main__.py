"""`make bench`: what memory costs against a bare Litestar pass-through, with one load client and one mock, in one run.

Subjects: `floor` (Litestar, httpx over aiohttp, inserts 2 KB, decodes each event), `off` and `on` (this gateway). Scenarios: small
requests, conversations that grow (`chat`, memory on recognises them), streams. CPU is the process's own, from the kernel.
Interleaved rounds, medians, and the range beside them. Also: start-up, resident size, and the input-cost multiplier of the layout.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench import layout
from tests.bench.load import Load, Result

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Subject:
    """A server process and where to reach it."""

    def __init__(self, name: str, command: list[str], port: int, env: dict[str, str], headers: dict[str, str]) -> None:
        self.name, self.url, self.headers = name, f"http://127.0.0.1:{port}/v1/chat/completions", headers
        begun = time.perf_counter()
        log = Path(tempfile.gettempdir()) / f"memgate-bench-{name}.log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=out, stderr=out)
        while True:
            try:
                body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hi"}]}).encode()
                request = urllib.request.Request(self.url, body, {"content-type": "application/json", "authorization": "Bearer k", **headers})
                with urllib.request.urlopen(request, timeout=5):
                    break
            except OSError as e:
                if self.process.poll() is not None or time.perf_counter() - begun > 30:
                    raise RuntimeError(f"{name} did not start, see {log}") from e
                time.sleep(0.01)
        self.started = time.perf_counter() - begun
        self.start_cpu = self.cpu()
        self.idle = self.resident()

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def subjects(mock: str, data: str) -> list[Subject]:
    floor, ours = free_port(), free_port()
    python = sys.executable
    uvicorn = ["--host", "127.0.0.1", "--loop", "uvloop", "--http", "httptools", "--log-level", "warning", "--no-access-log"]
    env = {"MEMGATE_STORAGE__DATA": data, "MEMGATE_STORAGE__VECTORS": "none", "MEMGATE_UPSTREAM": mock}
    gateway = Subject("on", [python, "-m", "gateway", "serve", "--port", str(ours)], ours, env, {"x-memory-user": "bench"})
    off = object.__new__(Subject)
    off.__dict__ |= {**gateway.__dict__, "name": "off", "headers": {"x-memory": "off"}}
    bare = Subject("floor", [python, "-m", "uvicorn", "tests.bench.floor:app", "--port", str(floor), *uvicorn], floor, {"FLOOR_UPSTREAM": mock}, {})
    return [bare, off, gateway]


SCENARIOS = {
    "small": {"connections": 16, "stream": False, "turns": 1},
    "chat": {"connections": 16, "stream": False, "turns": 10},
    "stream": {"connections": 16, "stream": True, "turns": 1},
    "one": {"connections": 1, "stream": False, "turns": 1},
}


async def measured(found: list[Subject], rounds: int, seconds: float) -> dict[str, dict[str, list[Result]]]:
    out: dict[str, dict[str, list[Result]]] = {s: {x.name: [] for x in found} for s in SCENARIOS}
    for scenario, options in SCENARIOS.items():
        for _ in range(rounds):
            for subject in found:
                load = Load(subject.url, {"authorization": "Bearer k", **subject.headers}, **options)
                before = subject.cpu()
                result = await load.run(seconds)
                await asyncio.sleep(0.2)  # work put off until after the answer still counts
                result.cpu = subject.cpu() - before
                out[scenario][subject.name].append(result)
    return out


def table(results: dict[str, dict[str, list[Result]]]) -> str:
    lines = ["| scenario | subject | CPU us/request | x floor | range | p50 ms | first event ms | CPU us/event | errors |", "|---|---|---|---|---|---|---|---|---|"]
    for scenario, by in results.items():
        base = statistics.median(r.cpu_us for r in by["floor"])
        for name, runs in by.items():
            cpu = [r.cpu_us for r in runs]
            event = statistics.median(r.cpu_us_event for r in runs)
            lines.append(
                f"| {scenario} | {name} | {statistics.median(cpu):.0f} | {statistics.median(cpu) / base:.2f} | {min(cpu):.0f}-{max(cpu):.0f} | "
                f"{statistics.median(r.p50 for r in runs):.2f} | {statistics.median(r.first for r in runs):.2f} | {event:.1f} | {sum(r.errors for r in runs)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args()
    port = free_port()
    mock = subprocess.Popen([sys.executable, "-m", "tests.bench.mock", str(port)], cwd=ROOT)
    time.sleep(1)
    found: list[Subject] = []
    try:
        with tempfile.TemporaryDirectory() as data:
            found = subjects(f"http://127.0.0.1:{port}/v1", data)
            results = asyncio.run(measured(found, args.rounds, args.seconds))
            loaded = {s.name: s.resident() for s in found}
            for s in found[::2]:
                s.stop()
    finally:
        mock.terminate()
        mock.wait(10)
        for s in found:
            if s.process.poll() is None:
                s.stop()
    print(table(results))
    for s in found[::2]:
        print(f"{s.name}: first answer after {s.started:.2f} s ({s.start_cpu:.2f} s of CPU), {s.idle:.0f} MiB idle, {loaded[s.name]:.0f} MiB after the load")
    multipliers = layout.multipliers()
    print("\n".join(f"input-cost multiplier, {k}: {v:.3f}" for k, v in multipliers.items()))
    print(f"{args.rounds} interleaved rounds of {args.seconds} s, medians; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}")
    if args.json:
        figures: dict[str, Any] = {s: {n: [r.__dict__ for r in runs] for n, runs in by.items()} for s, by in results.items()}
        Path(args.json).write_text(json.dumps({"results": figures, "multipliers": multipliers}, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
