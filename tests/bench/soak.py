"""`python -m tests.bench.soak`: many streams, a third of them left early, and how the gateway's
memory grows meanwhile.

Half of the streams have memory on, half have it off. Resident size is read every 500 streams; the
slope is the least-squares line over all but the first quarter, in MiB per 1,000 streams; beside it,
that of the last quarter. Also read, at the end and a while after: open descriptors, and what is
idle.

`--requests 200000` sends requests of every kind instead (see `mixed`), and holds the resident size
of the last quarter against what it was after 20,000, when the caches are full: it may be 5 MiB
more.
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
from collections import Counter
from pathlib import Path

import aiohttp

from tests.bench.mixed import Mix, text_of
from tests.bench.subjects import Mock, Subject, gateway

# MiB per 1,000 streams.
BAR = 0.05
# Requests by when the caches are full, and the MiB that may come after.
FULL, ROOM = 20_000, 5.0


HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}


async def one(
    session: aiohttp.ClientSession,
    url: str,
    number: int,
    left: float,
    rng: random.Random,
    memory: str,
) -> None:
    on = memory == "on" or (memory == "both" and number % 2)
    headers = {**HEADERS, **({"x-memory-user": f"u{number % 200}"} if on else {"x-memory": "off"})}
    body = json.dumps(
        {
            "model": "mock",
            "stream": True,
            "messages": [{"role": "user", "content": f"question {number} " + "word " * 40}],
        }
    )
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
    return (
        1000 * sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)
    )


async def soaked(subject: Subject, args: argparse.Namespace) -> list[tuple[int, float]]:
    points, numbers, rng = [], itertools.count(1), random.Random(3)

    async def user(session: aiohttp.ClientSession) -> None:
        while (number := next(numbers)) <= args.streams:
            await one(session, subject.url, number, args.left, rng, args.memory)
            if number % 500 == 0:
                points.append((number, subject.resident()))
                print(
                    f"\r{number}/{args.streams} streams, {points[-1][1]:.1f} MiB",
                    end="",
                    flush=True,
                )

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(user(session) for _ in range(args.at_once)))
    print()
    return points


async def mixed(subject: Subject, args: argparse.Namespace) -> list[tuple[int, float]]:
    points, numbers, mix, begun = (
        [],
        itertools.count(1),
        Mix(args.users, args.keys),
        time.perf_counter(),
    )
    told: Counter[str] = Counter()
    base = subject.url.removesuffix("/v1/chat/completions")

    async def user(session: aiohttp.ClientSession) -> None:
        while (number := next(numbers)) <= args.requests:
            wanted = mix.request(number)
            async with session.request(
                wanted.method, base + wanted.path, data=wanted.body or None, headers=wanted.headers
            ) as response:
                answer = await response.read()
            told[f"{response.status} {response.headers.get('x-memory-status', '-')}"] += 1
            if (
                response.status == 200
                and wanted.talk
                and (text := text_of(answer, streamed=wanted.streamed)) is not None
            ):
                mix.answered(wanted.talk, text)
            if number % 1000 == 0:
                points.append((number, subject.resident()))
            if number % FULL == 0:
                print(
                    f"{number:>8} requests  {points[-1][1]:6.1f} MiB  "
                    f"{time.perf_counter() - begun:5.0f} s",
                    flush=True,
                )

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(user(session) for _ in range(args.at_once)))
    print(
        "answers, by status and `x-memory-status`: "
        + ", ".join(f"{n} {name}" for name, n in told.most_common())
    )
    return points


def verdict(points: list[tuple[int, float]]) -> tuple[str, bool]:
    """What the resident size of the last quarter says, and whether it is good."""
    full = next(size for number, size in points if number >= FULL)
    more = max(size for _, size in points[-len(points) // 4 :]) - full
    return (
        f"{full:.1f} MiB after {FULL} requests, {more:+.1f} at most in the last quarter (bar "
        f"{ROOM})",
        more <= ROOM,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=0, help="requests of every kind instead")
    parser.add_argument("--users", type=int, default=2500)
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=48)
    parser.add_argument(
        "--left", type=float, default=0.3, help="the share of streams that the client leaves early"
    )
    parser.add_argument(
        "--memory",
        choices=["on", "off", "both"],
        default="both",
        help="both: every second stream has it",
    )
    args = parser.parse_args()
    mock = Mock()
    try:
        with tempfile.TemporaryDirectory() as data:
            subject = gateway(
                "soak",
                mock,
                Path(data),
                **({"server__single_user": "false"} if args.requests else {}),
            )
            try:
                idle = descriptors(subject.process.pid)
                begun, used = time.perf_counter(), subject.cpu()
                points = asyncio.run((mixed if args.requests else soaked)(subject, args))
                took, used = time.perf_counter() - begun, subject.cpu() - used
                # Idle connections to the upstream are closed within a minute.
                time.sleep(65)
                after, open_now = subject.resident(), descriptors(subject.process.pid)
            finally:
                subject.stop()
            log = subject.log.read_text()
    finally:
        mock.stop()
    if args.requests:
        said, good = verdict(points)
        print(
            f"{args.requests} requests, {args.at_once} at once, {took:.0f} s, "
            f"{1e3 * used / args.requests:.2f} ms of CPU each: {said}"
        )
    else:
        grown, late = slope(points[len(points) // 4 :]), slope(points[-len(points) // 4 :])
        print(
            f"{args.streams} streams, {args.left:.0%} left early, {args.at_once} at once, "
            f"{took:.0f} s: {grown:+.4f} MiB per 1,000 streams (bar {BAR}), {late:+.4f} in the "
            "last quarter"
        )
        good = grown < BAR
    print(
        f"resident: {subject.idle:.1f} MiB idle, {points[-1][1]:.1f} at the end, {after:.1f} "
        f"afterwards; descriptors: {idle} before, {open_now} afterwards"
    )
    print(f"log: {log.strip()[-500:] or 'nothing'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
