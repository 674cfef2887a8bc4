"""`make bench BENCH=freeze`: doubles each dimension up to its limit and prints the worst wait of others and the growth.

For each size: the status and what was said of the memory, how long it took, the gateway's CPU, its peak, and the worst wait of others
(`/health`, and a chat with memory). Growth is the CPU of the last size over that of half of it; below `FREE` seconds it is noise.
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.bench.freeze.dimensions import DIMENSIONS, Dimension
from tests.bench.freeze.stage import Outcome, Stage

HELD = 0.15  # seconds over the usual that others may wait
FREE = 0.3  # seconds of CPU below which growth says nothing: others are served meanwhile
STEEP = 2.6  # times the CPU for twice the size: linear, with room for noise


def sizes(dimension: Dimension, steps: int) -> list[int]:
    """The last sizes of a doubling up to the limit."""
    found = [dimension.limit]
    while len(found) < steps and found[0] // 2 >= 1:
        found.insert(0, found[0] // 2)
    return found


def verdict(played: list[Outcome], usual: float) -> str:
    """What is wrong with a dimension, if anything."""
    worst = max(o.held for o in played)
    faults = []
    if worst > HELD + usual:
        faults.append("HOLDS")
    if len(played) > 1 and played[-1].cpu > FREE and played[-1].cpu > STEEP * max(played[-2].cpu, FREE / 4):
        faults.append("STEEP")
    if played[-1].status in (0, 500):
        faults.append("NO ANSWER")
    return ", ".join(faults) or "-"


def row(o: Outcome) -> str:
    return (f"   {o.size:>10,} {o.status:>4} {o.memory or '-':9} {o.took:7.2f} s {o.cpu:7.2f} s CPU {o.grown / 2**20:+7.0f} MiB"
            f"   health {o.waits.get('health', 0) * 1e3:6.0f} ms  chat {o.waits.get('chat', 0) * 1e3:6.0f} ms  machine {o.waits.get('machine', 0) * 1e3:4.0f} ms  degraded {o.waits.get('degraded', 0):.0f}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="freeze", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="play the dimensions whose names hold these words")
    parser.add_argument("--steps", type=int, default=3, help="sizes of each: its limit, half of it, and so on")
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args(argv)
    chosen = [d for d in DIMENSIONS if args.only in d.name]
    failed, told = 0, {}
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        stage.settle()
        stage.waits()
        stage.settle()
        quiet = stage.waits()
        usual = max(quiet.get("health", 0.0), quiet.get("chat", 0.0))
        print(f"usual wait of others: health {quiet.get('health', 0) * 1e3:.0f} ms, chat {quiet.get('chat', 0) * 1e3:.0f} ms at worst")
        for dimension in chosen:
            played = []
            for size in sizes(dimension, args.steps):
                played.append(stage.play(dimension, size))
                if max(played[-1].waits.get("health", 0.0), played[-1].took / 8) > 5:
                    break
            found = verdict(played, usual)
            failed += found != "-"
            print(f"{dimension.name}: {found}")
            print("\n".join(map(row, played)), flush=True)
            told[dimension.name] = {"verdict": found, "played": [[o.size, o.status, o.took, o.cpu, o.grown, o.waits] for o in played]}
    print(f"{len(chosen)} dimensions, {failed} with a fault")
    if args.json:
        Path(args.json).write_text(json.dumps(told, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
