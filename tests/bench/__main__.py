"""`make bench`: what memory costs, and what it finds.

BENCH="chat one" chooses: scenarios (small big one many stream round history chat), growth, layout,
retrieval, latency, junk (models that do not ask), cues (recall for tasks); and by itself freeze:
does one request hold the others? streams: is any odd stream shown otherwise than it should be?
wires: the same on Responses and Messages; scale: bytes and times on Postgres as the memory
grows, at as many messages as --messages says; fleet-cpu: what Postgres costs the gateway;
fleet-scaling: what a second worker adds; rolling: the version before and this one on one database.

The scenarios play the same conversations on every subject in turn, round after round: the mock
itself (`direct`), bare pass-throughs (`floor`: Litestar on httpx over aiohttp, inserts 2 KB,
decodes each event; `httpx`: the same on plain httpx), the gateway with memory `off`, `on` (turns
three and later: recognised, two messages recorded) and, for chat, `cold` (the next turn after a
restart). CPU is the server process's own (on Linux). Ratios stand; absolute figures are this
machine's, this minute's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import uvloop

from tests.bench import cue_facts, cues, fleet, fleet_cpu, fleet_scaling, junk, layout, streams
from tests.bench.freeze import __main__ as freeze
from tests.bench.load import Shape
from tests.bench.retrieval import __main__ as retrieval
from tests.bench.scale import __main__ as scale
from tests.bench.scenarios import OFTEN, SCENARIOS, Figures, compared, growth
from tests.bench.subjects import Mock, Subject, floor, gateway
from tests.bench.wires import __main__ as wires

OTHERS = ("growth", "layout", "retrieval", "latency", "junk", "cues")
# played only where they are named: freeze takes long, and sends what no app would; wires has mocks
# and a floor of its own; the others start Postgres: scale writes gigabytes, model and faults go on
# for hours
FLEET = ("model", "faults", "rolling")
ALONE = ("freeze", "streams", "wires", "scale", "fleet-cpu", "fleet-scaling", *FLEET)
Results = dict[str, dict[str, Figures]]
Bar = tuple[str, float, float, Callable[[Results], float]]


def ratio(scenario: str, subject: str, key: str = "cpu_us") -> Callable[[Results], float]:
    return lambda r: r[scenario][subject][key] / r[scenario]["floor"][key]


def windowed(results: Results) -> float:
    """A turn above the bound to one below it, each over the floor's."""
    return ratio("above", "on")(results) / ratio("below", "on")(results)


def added(scenario: str, key: str, base: str) -> Callable[[Results], float]:
    return lambda r: r[scenario]["on"][key] - r[scenario][base][key]


BARS: list[Bar] = [
    ("CPU a request, memory off, x floor", 1.3, 0.8, ratio("small", "off")),
    ("the same in conversations, memory off", 1.3, 0.8, ratio("chat", "off")),
    ("CPU a request, memory on, warm", 1.6, 1.0, ratio("chat", "on")),
    ("the same, of a model that never calls its memory", 12, 6, ratio("chat", "auto")),
    ("the same, of users with 8 conversations before", 1.5, 1.2, ratio("known", "auto")),
    ("the same, of a model that calls its memory", 1.2, 1.0, ratio("known", "on")),
    ("a body above .7 of the window, to one below", 1.3, 1.1, windowed),
    ("the same, 200 KB", 1.6, 1.0, ratio("big", "on")),
    ("the same, a history of 200 messages", 2.0, 1.2, ratio("history", "on")),
    ("CPU a streamed event, memory on", 1.2, 0.8, ratio("stream", "on", "cpu_us_event")),
    ("one connection, memory on, ms over direct", 1.5, 0.7, added("one", "p50_ms", "direct")),
    (
        "ms to the first token, 16 streams, over the floor",
        3.0,
        1.0,
        added("stream", "first_ms", "floor"),
    ),
    ("s from start to the first answer", 1.5, 0.8, lambda r: r["process"]["on"]["start_s"]),
    ("MiB resident after the load", 110, 80, lambda r: r["process"]["on"]["loaded_mib"]),
    (
        "CPU of turn 2,000 to turn 100, less the client's bytes",
        1.2,
        1.05,
        lambda r: max(f["of all"] for f in r["growth"].values()),
    ),
    (
        "the same, of what is beyond the floor's",
        1.2,
        1.05,
        lambda r: max(f["ratio"] for f in r["growth"].values()),
    ),
]
COLUMNS = {
    "cpu_us": "CPU us",
    "cpu_us_event": "us/event",
    "rps": "a second",
    "p50_ms": "p50 ms",
    "first_ms": "first ms",
    "hop_ms": "hop ms",
    "round_ms": "round ms",
    "warm": "warm",
    "recorded": "recorded",
    "calls": "calls",
    "bytes": "bytes",
    "errors": "errors",
}


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def table(name: str, found: dict[str, Figures]) -> str:
    base = found["floor"]["cpu_us"]
    shape = ", ".join(
        f"{f.name} {value}"
        for f in fields(Shape)
        if (value := getattr(SCENARIOS[name], f.name)) != f.default
    )
    lines = [
        f"\n## {name}: {shape}",
        f"{'':7} {'x floor':>7} "
        + " ".join(f"{title:>9}" for title in COLUMNS.values())
        + "  CPU: range, and bar",
    ]
    for subject, f in found.items():
        low, high = f["cpu_range"]
        bar = "█" * round(f["cpu_us"] / base * 8)
        lines.append(
            f"{subject:7} {number(f['cpu_us'] / base):>7} "
            + " ".join(f"{number(f[key]):>9}" for key in COLUMNS)
            + f"  {low:,.0f}-{high:,.0f} {bar[:80]}"
        )
    return "\n".join(lines)


def bars(results: Results) -> str:
    lines = [f"\n{'':58} {'measured':>9} {'must':>6} {'goal':>6}"]
    for title, must, goal, figure in BARS:
        try:
            value = figure(results)
        except KeyError:
            # Of a scenario that was not chosen.
            continue
        said = "goal met" if value <= goal else "met" if value <= must else "NOT MET"
        lines.append(f"{title:58} {value:9.2f} {must:6g} {goal:6g}  {said}")
    return "\n".join(lines)


def load(names: Sequence[str], rounds: int, told: Callable[[str], None]) -> Results:
    """Starts everything, plays it, stops everything."""
    running: list[Subject] = []
    with tempfile.TemporaryDirectory() as data:
        try:
            running.append(mock := Mock())
            running.append(bare := floor("floor", mock, "aiohttp"))
            running.append(floor("httpx", mock, "httpx"))
            running.append(gateway("off", mock, Path(data, "off"), {"x-memory": "off"}))
            # An overloaded machine must not pass off a turn that went without its memory as a cheap
            # one.
            patient = {"memory__read_deadline_ms": "10000"}
            # A model that uses its memory by itself, and one that does not.
            asks = {**patient, "memory__recall": "tools", "memory__extract": "off"}
            running.append(on := gateway("on", mock, Path(data, "on"), **asks))
            running.append(gateway("auto", mock, Path(data, "auto"), **patient))
            for subject in running[1:]:
                for _ in range(2):
                    told(f"start of {subject.name}")
                    subject.restart()
            results: Results = uvloop.run(
                compared(mock, running, [n for n in names if n in SCENARIOS], rounds, told)
            )
            results["process"] = {
                s.name: {
                    "start_s": statistics.median(s.starts),
                    "start_cpu_s": s.start_cpu,
                    "idle_mib": s.idle,
                    "loaded_mib": s.resident(),
                }
                for s in running[1:]
            }
            if "growth" in names:
                results["growth"] = uvloop.run(growth(mock, on, bare, told))
        finally:
            for subject in reversed(running):
                subject.stop()
    return results


def grown(found: dict[str, Figures]) -> str:
    lines = [
        "\n## growth: CPU us of a turn; ratio: of what is beyond the floor's for the same "
        "bodies; of all: without what the floor too pays more for a longer one\n"
        f"{'a client that resends':30} " + " ".join(f"{k:>14}" for k in next(iter(found.values())))
    ]
    return "\n".join(
        lines
        + [
            f"{client:30} " + " ".join(f"{number(v):>14}" for v in f.values())
            for client, f in found.items()
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="what to run; everything when nothing is named"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument(
        "--messages", type=int, action="append", help="a size for scale; may be given again"
    )
    args = parser.parse_args()
    if unknown := {*args.names} - {*SCENARIOS, *OTHERS, *ALONE}:
        parser.error(
            f"{', '.join(sorted(unknown))} is not known; there are "
            f"{', '.join([*SCENARIOS, *OTHERS, *ALONE])}"
        )
    names, begun, before = args.names or [*SCENARIOS, *OTHERS], time.time(), os.getloadavg()[0]

    def told(what: str) -> None:
        print(f"{time.time() - begun:5.0f} s  {what}", file=sys.stderr)

    figures: dict[str, Any] = {}
    failed = 0
    if {*SCENARIOS, "growth"} & set(names):
        results = figures["load"] = load(names, args.rounds, told)
        for name in SCENARIOS:
            if name in results:
                print(table(name, results[name]))
                failed += sum(f["errors"] for f in results[name].values())
        for name, f in results["process"].items():
            print(
                f"{name:7} first answer after {f['start_s']:.2f} s ({f['start_cpu_s']:.2f} s of "
                f"CPU); {f['idle_mib']:.0f} MiB idle, {f['loaded_mib']:.0f} after the load"
            )
        if "growth" in results:
            print(grown(results["growth"]))
        print(bars(results))
    if "layout" in names:
        told("layout")
        bills = layout.bills()
        figures["layout"] = layout.multipliers(bills)
        print("\n" + layout.parts(bills))
        print(
            "\n".join(f"input-cost multiplier, {k}: {v:.3f}" for k, v in figures["layout"].items())
        )
    if "cues" in names:
        told("cues")
        print(f"\n{cues.figures()}\n\n{cue_facts.figures()}")
    if "junk" in names:
        told("junk")
        print(f"\n{junk.report()}")
    for name, argv in (("retrieval", []), ("latency", ["--latency"])):
        if name in names:
            told(name)
            print()
            retrieval.main(argv)
    if "streams" in names:
        told("streams")
        for line in streams.report():
            print(line, flush=True)
    if "wires" in names:
        told("wires")
        figures["wires"] = wires.main(["--rounds", str(args.rounds)])
    if "scale" in names:
        told("scale")
        figures["scale"] = scale.main([f"--messages={n}" for n in args.messages or ()])
    if "fleet-cpu" in names:
        figures["fleet-cpu"] = fleet_cpu.main(args.rounds, told)
        print(fleet_cpu.report(figures["fleet-cpu"]))
    if "fleet-scaling" in names:
        runs = fleet_scaling.main(args.rounds, told)
        print(fleet_scaling.report(runs))
    if fleet_names := [name for name in FLEET if name in names]:
        told("fleet")
        print(fleet.main(fleet_names))
    if "freeze" in names:
        told("freeze")
        failed += freeze.main([])
        if names == ["freeze"]:
            return 1 if failed else 0
    print(
        f"\n{args.rounds} interleaved rounds (of streams {args.rounds * OFTEN['stream']}), "
        f"medians, {time.time() - begun:.0f} s in all; load average {before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    )
    if args.json:
        Path(args.json).write_text(
            json.dumps(
                {
                    **figures,
                    "load_average": [before, os.getloadavg()[0]],
                    "cores": os.cpu_count(),
                    "date": time.strftime("%Y-%m-%d"),
                },
                indent=1,
            )
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
