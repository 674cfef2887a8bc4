"""`python -m tests.bench.soak`: many streams, a third of them left early, and how the gateway's memory grows meanwhile.

Half of the streams have memory on, half have it off. Resident size is read every 500 streams; the slope is the least-squares line
over all but the first quarter, in MiB per 1,000 streams; beside it, that of the last quarter: caches that are bounded fill until some
16,000 streams. Also read, at the end and a while after: open descriptors, and what is idle.
"""
from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from tests.bench.subjects import Mock, Subject, gateway

BAR = 0.05


HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}


async def one(session: aiohttp.ClientSession, url: str, number: int, left: float, rng: random.Random, memory: str) -> None:
    on = memory == "on" or (memory == "both" and number % 2)
    headers = {**HEADERS, **({"x-memory-user": f"u{number % 200}"} if on else {"x-memory": "off"})}
    body = json.dumps({"model": "mock", "stream": True, "messages": [{"role": "user", "content": f"question {number} " + "word " * 40}]})
    async with session.post(url, data=body, headers=headers) as response:
        leaves = rng.random() < left
        events = rng.randrange(40)
        async for data in response.content.iter_any():
            events -= data.count(b"\n\n")
            if leaves and events < 0:
                response.close()
                return


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def slope(points: list[tuple[int, float]]) -> float:
    """MiB per 1,000 streams."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    return 1000 * sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)


async def soaked(subject: Subject, args: argparse.Namespace) -> list[tuple[int, float]]:
    points, numbers, rng = [], itertools.count(1), random.Random(3)

    async def user(session: aiohttp.ClientSession) -> None:
        while (number := next(numbers)) <= args.streams:
            await one(session, subject.url, number, args.left, rng, args.memory)
            if number % 500 == 0:
                points.append((number, subject.resident()))
                print(f"\r{number}/{args.streams} streams, {points[-1][1]:.1f} MiB", end="", flush=True)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(user(session) for _ in range(args.at_once)))
    print()
    return points


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, default=48)
    parser.add_argument("--left", type=float, default=0.3, help="the share of streams that the client leaves early")
    parser.add_argument("--memory", choices=["on", "off", "both"], default="both", help="both: every second stream has it")
    args = parser.parse_args()
    mock = Mock()
    try:
        with tempfile.TemporaryDirectory() as data:
            subject = gateway("soak", mock, Path(data))
            try:
                idle = descriptors(subject.process.pid)
                begun = time.perf_counter()
                points = asyncio.run(soaked(subject, args))
                took = time.perf_counter() - begun
                time.sleep(65)  # idle connections to the upstream are closed within a minute
                after, open_now = subject.resident(), descriptors(subject.process.pid)
            finally:
                subject.stop()
            log = subject.log.read_text()
    finally:
        mock.stop()
    grown, late = slope(points[len(points) // 4 :]), slope(points[-len(points) // 4 :])
    print(f"{args.streams} streams, {args.left:.0%} left early, {args.at_once} at once, {took:.0f} s: {grown:+.4f} MiB per 1,000 streams (bar {BAR}), {late:+.4f} in the last quarter")
    print(f"resident: {subject.idle:.1f} MiB idle, {points[-1][1]:.1f} at the end, {after:.1f} afterwards; descriptors: {idle} before, {open_now} afterwards")
    print(f"log: {log.strip()[-500:] or 'nothing'}")
    return 0 if grown < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
