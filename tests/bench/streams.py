"""Streams as odd as servers send them: does any client see another answer than the model gave?

`python -m tests.bench streams` plays 100,000 generated streams a wire, and prints how many were
shown otherwise than the same answer sent whole, how many showed a call of ours, and how many lost
one of the client's. All three must be 0.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.odd_streams.play import WIRES, play

STREAMS = 100_000
BATCH = 2_500
COLUMNS = "{:<20}{:>10}{:>13}{:>12}{:>15}{:>9}"


def count_faults(wire: str, first: int) -> Counter[str]:
    """Play one batch; return how often each fault was seen, and one difference in words."""
    faults: Counter[str] = Counter()
    for difference in play(wire, range(first, first + BATCH)):
        faults.update(["difference", *difference.faults])
    return faults


def report(streams: int = STREAMS) -> Iterator[str]:
    """Yield the lines of the table, each as soon as its wire has been played."""
    yield COLUMNS.format("wire", "streams", "differences", "ours shown", "client's lost", "seconds")
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for wire in WIRES:
            begun = time.perf_counter()
            batches = range(0, streams, BATCH)
            faults = sum(pool.map(count_faults, [wire] * len(batches), batches), Counter())
            counts = (faults["difference"], faults["shown"], faults["lost"])
            seconds = f"{time.perf_counter() - begun:.0f}"
            yield COLUMNS.format(wire, streams, *counts, seconds)
