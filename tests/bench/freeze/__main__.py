"""`make bench BENCH=freeze`: doubles each dimension up to its limit and prints the worst wait of
others and the growth.

For each size: the status and what was said of the memory, how long it took, the gateway's CPU, its
peak, and the worst wait of others (`/health`, and a chat with memory). The largest size is played
`PLAYS` times: others wait at most `MEDIAN` in the median of the plays, and `WORST` in any. Growth
is the CPU of the last size over that of half of it; below `FREE` seconds it is noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.freeze import bound_dimensions, dimensions, format_dimensions
from tests.bench.freeze.dimensions import Dimension
from tests.bench.freeze.stage import Outcome, Stage

# Of the largest size.
PLAYS = 3
# Seconds over the usual that others may wait, over the plays.
MEDIAN, WORST = 0.05, 0.15
# Seconds of CPU below which growth says nothing: others are served meanwhile.
FREE = 0.3
DIMENSIONS = [
    *dimensions.REQUESTS,
    *format_dimensions.REQUESTS,
    *dimensions.ANSWERS,
    *format_dimensions.ANSWERS,
    *bound_dimensions.REQUESTS,
    *bound_dimensions.ANSWERS,
]
# Times the CPU for twice the size: linear, with room for noise.
STEEP = 2.6


def sizes(dimension: Dimension, steps: int) -> list[int]:
    """The last sizes of a doubling up to the limit."""
    found = [dimension.limit]
    while len(found) < steps and found[0] // 2 >= 1:
        found.insert(0, found[0] // 2)
    return found


def verdict(played: list[Outcome], plays: list[Outcome], usual: float) -> str:
    """What is wrong with a dimension, if anything.

    played: each size once. plays: the largest size, several times.
    """
    median = statistics.median(o.held for o in plays) - usual
    worst = max(o.held for o in (*played, *plays)) - usual
    faults = []
    if median > MEDIAN:
        faults.append(f"HOLDS {median * 1e3:.0f} ms in the median (at most {MEDIAN * 1e3:.0f})")
    if worst > WORST:
        faults.append(f"HOLDS {worst * 1e3:.0f} ms at worst (at most {WORST * 1e3:.0f})")
    if (
        len(played) > 1
        and played[-1].cpu > FREE
        and played[-1].cpu > STEEP * max(played[-2].cpu, FREE / 4)
    ):
        faults.append("STEEP")
    if played[-1].status in (0, 500):
        faults.append("NO ANSWER")
    return ", ".join(faults) or "-"


def row(o: Outcome) -> str:
    return (
        f"   {o.size:>10,} {o.status:>4} {o.memory or '-':9} {o.took:7.2f} s {o.cpu:7.2f} s CPU "
        f"{o.grown / 2**20:+7.0f} MiB   health {o.waits.get('health', 0) * 1e3:6.0f} ms  chat "
        f"{o.waits.get('chat', 0) * 1e3:6.0f} ms  machine "
        f"{o.waits.get('machine', 0) * 1e3:4.0f} ms  degraded {o.waits.get('degraded', 0):.0f}"
    )


HEAD = """# What one request can do to the others

Each dimension in which a request, or what its upstream answers, can grow, at the largest size
that is played. *Answer* is the status and what was said of the memory. *CPU* is the gateway's,
less what a prober costs that asks for `/health` and a chat of another user all the while.
*Growth* is that of the CPU for twice the size, where it says anything. *Wait* is the worst that
the prober waited, the median of {plays} plays; *worst* is that of all. At most {median:.0f} ms more
than usual are allowed in the median, and {most:.0f} ms at worst.

Made by `python -m tests.bench.freeze --markdown docs/freeze.md` (`make bench BENCH=freeze` prints
the same): {day}, {cores} cores, load average {load:.1f}; usual waits: {usual}.

| dimension | size | answer | CPU, s | growth | peak, MiB | wait, ms | worst, ms |
|---|---|---|---|---|---|---|---|
"""


def cells(name: str, played: list[Outcome], plays: list[Outcome]) -> str:
    """One row of the table in the docs."""
    o = played[-1]
    steep = f"x{o.cpu / played[-2].cpu:.1f}" if len(played) > 1 and o.cpu > FREE else "-"
    waits = [max(x.waits.get(who, 0.0) for who in ("health", "chat")) * 1e3 for x in plays]
    answer = f"{o.status} {o.memory}".strip()
    return (
        f"| {name} | {o.size:,} | {answer} | {o.cpu:.2f} | {steep} | {o.grown / 2**20:+.0f} | "
        f"{statistics.median(waits):.0f} | {max(waits):.0f} |"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="freeze", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="play the dimensions whose names hold these words"
    )
    parser.add_argument(
        "--bounds", action="store_true", help="play the dimensions of `bound_dimensions` alone"
    )
    parser.add_argument(
        "--steps", type=int, default=3, help="sizes of each: its limit, half of it, and so on"
    )
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--markdown", help="also write the table to this file")
    args = parser.parse_args(argv)
    bounds = [*bound_dimensions.REQUESTS, *bound_dimensions.ANSWERS]
    chosen = [d for d in (bounds if args.bounds else DIMENSIONS) if args.only in d.name]
    failed, told, rows = 0, {}, []
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        stage.settle()
        stage.waits()
        stage.settle()
        quiet = stage.waits()
        usual = max(quiet.get("health", 0.0), quiet.get("chat", 0.0))
        print(
            f"usual wait of others: health {quiet.get('health', 0) * 1e3:.0f} ms, chat "
            f"{quiet.get('chat', 0) * 1e3:.0f} ms at worst"
        )
        for dimension in chosen:
            played = []
            for size in sizes(dimension, args.steps):
                played.append(stage.play(dimension, size))
                if max(played[-1].waits.get("health", 0.0), played[-1].took / 8) > 5:
                    break
            again = [stage.play(dimension, played[-1].size) for _ in range(PLAYS - 1)]
            plays = [played[-1], *again]
            found = verdict(played, plays, usual)
            failed += found != "-"
            print(f"{dimension.name}: {found}")
            print("\n".join(map(row, (*played, *again))), flush=True)
            rows.append(cells(dimension.name, played, plays))
            told[dimension.name] = {
                "verdict": found,
                "played": [
                    [o.size, o.status, o.took, o.cpu, o.grown, o.waits] for o in (*played, *again)
                ],
            }
    print(f"{len(chosen)} dimensions, {failed} with a fault")
    if args.json:
        Path(args.json).write_text(json.dumps(told, indent=1))
    if args.markdown:
        waits = ", ".join(
            f"{name} {quiet.get(name, 0.0) * 1e3:.0f} ms" for name in ("health", "chat")
        )
        head = HEAD.format(
            day=time.strftime("%Y-%m-%d"),
            cores=os.cpu_count(),
            load=os.getloadavg()[0],
            usual=waits,
            plays=PLAYS,
            median=MEDIAN * 1e3,
            most=WORST * 1e3,
        )
        Path(args.markdown).write_text(head + "\n".join(rows) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
