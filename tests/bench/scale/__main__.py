"""`python -m tests.bench.scale`: bytes and times on Postgres as the memory grows tenfold.

Starts a Postgres of its own, which flushes each commit, and fills it with 10,000 messages, 100,000
and 1,000,000, or what `--messages` names: each user has 1,000, in conversations of 25 turns. At
each size it prints bytes a row by table and index, and what the parts of a turn take in process;
then what that makes of a million users. A time may grow by 1.3 each decade. It takes six minutes,
and 4 GB in the temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from memory.service import Memory
from memory.stores.sql.engine.database import Database
from tests.bench.scale import paper
from tests.bench.scale.filling import MESSAGES, POLICY, Filler
from tests.bench.scale.measures import Measures, Times
from tests.bench.scale.sizes import TableSize, table_sizes
from tests.postgres_server import PostgresServer, binaries, postgres_server

SECRET = b"b" * 32
SIZES, TIMES, CONVERSATIONS = (10_000, 100_000, 1_000_000), 400, 20
# The server's own cache: the largest size is several times that.
BUFFERS = "1GB"
# Most that a time may grow by when the messages do tenfold.
GROWTH = 1.3


@dataclass(slots=True)
class Found:
    """What was found at one size. log_bytes: of the server's log of writes, for a turn."""

    messages: int
    sizes: dict[str, TableSize]
    times: dict[str, Times]
    log_bytes: float


def main(argv: Sequence[str] | None = None, told: Callable[[str], None] = print) -> dict[str, Any]:
    """Fill, measure, print; return the figures by number of messages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, action="append", help="a size; may be given again")
    parser.add_argument("--times", type=int, default=TIMES, help="how often each part is measured")
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS, help="of each user")
    args = parser.parse_args(argv)
    if binaries() is None:
        parser.error("postgres is not installed")
    sizes = sorted(args.messages or SIZES)
    with postgres_server(safe=True, buffers=BUFFERS) as server:
        server.run("ALTER SYSTEM SET wal_compression = 'lz4'", "SELECT pg_reload_conf()")
        found = _play(server, sizes, args, told)
    told(growth(found))
    told(paper.report(paper.costs_of(found[-1].sizes, found[-1].times, found[-1].log_bytes)))
    return {str(one.messages): asdict(one) for one in found}


def _play(
    server: PostgresServer, sizes: Sequence[int], args: Any, told: Callable[[str], None]
) -> list[Found]:
    url, found = server.database(SECRET), []
    database = url.rsplit("/", 1)[1]
    filler: Filler | None = None
    for size in sizes:
        begun = time.time()
        filler = asyncio.run(_fill(url, filler, size, args.conversations, max(sizes)))
        server.run("VACUUM ANALYZE", database=database)
        server.run("CHECKPOINT")
        there = table_sizes(server, database)
        told(f"\n{size:,} messages, filled in {time.time() - begun:.0f} s\n{size_table(there)}")
        measured, log_bytes = asyncio.run(_measure(url, server, filler, args.times))
        found.append(Found(size, there, measured, log_bytes))
        told(f"{time_table(measured)}\nlog of writes: {log_bytes:,.0f} bytes a turn")
    return found


async def _fill(
    url: str, before: Filler | None, size: int, conversations: int, most: int
) -> Filler:
    memory = Memory(Database(url, secret=SECRET), POLICY, SECRET)
    await memory.open()
    filler = before or Filler(memory, url, conversations, max(most, MESSAGES * conversations))
    await filler.grow(size)
    await memory.close()
    return filler


async def _measure(
    url: str, server: PostgresServer, filler: Filler, times: int
) -> tuple[dict[str, Times], float]:
    database = Database(url, secret=SECRET)
    database.need_lease()
    memory = Memory(database, POLICY, SECRET)
    await memory.open()
    measures = Measures(memory, server)
    out = await measures.all(filler.lines, filler.embedded, times)
    before = await asyncio.to_thread(_log_position, server)
    for line in filler.lines[:: max(1, len(filler.lines) // times)][:times]:
        await measures.write(line)
    wrote = await asyncio.to_thread(_log_position, server) - before
    await memory.close()
    return out, wrote / min(times, len(filler.lines))


def _log_position(server: PostgresServer) -> int:
    return int(server.run("SELECT pg_current_wal_lsn() - '0/0'")[0][0])


def size_table(found: dict[str, TableSize]) -> str:
    lines = [f"{'bytes a row':34} {'rows':>10} {'table':>7} {'indexes':>8} {'all':>7}"]
    for name, table in found.items():
        own = table.parts[name] / table.rows
        lines.append(
            f"{name:34} {table.rows:10,} {own:7.0f} {table.row_bytes - own:8.0f} "
            f"{table.row_bytes:7.0f}"
        )
        lines += [
            f"  {part:43} {'':1} {size / table.rows:8.0f}"
            for part, size in table.parts.items()
            if part != name
        ]
    return "\n".join(lines)


def time_table(found: dict[str, Times]) -> str:
    lines = [f"{'ms':20} {'p50':>8} {'p95':>8} {'server CPU':>11}"]
    lines += [f"{name:20} {t.p50:8.2f} {t.p95:8.2f} {t.server:11.2f}" for name, t in found.items()]
    return "\n".join(lines)


def growth(found: Sequence[Found]) -> str:
    """How the times grow from each size to the next."""
    lines = []
    for before, now in pairwise(found):
        lines.append(f"\nfrom {before.messages:,} to {now.messages:,} messages, times as long")
        for name, t in now.times.items():
            p50, p95 = t.p50 / before.times[name].p50, t.p95 / before.times[name].p95
            lines.append(
                f"{name:20} p50 {p50:5.2f}   p95 {p95:5.2f}   "
                f"{'met' if max(p50, p95) <= GROWTH else 'NOT MET'} (at most {GROWTH})"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    begun = os.getloadavg()[0]
    main()
    print(f"\nload average {begun:.1f} before, {os.getloadavg()[0]:.1f} after")
    sys.exit(0)
