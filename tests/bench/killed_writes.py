"""Fifty gateways killed with -9 amid turns whose tools change something (issue 38).

`python -m tests.bench killed-writes` plays them, two minutes; the suite plays three.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.e2e.killed_writes import KilledWrites, Tally

POINTS = 50
# Of them, at which the server's count is what models were told.
MIN_EQUAL = 40


def main(points: int = POINTS, seed: int = 38) -> tuple[Tally, bool]:
    """Return what came of it, and whether every promise holds."""
    with tempfile.TemporaryDirectory(prefix="mnemogate-killed-") as name:
        tally = asyncio.run(KilledWrites(Path(name), seed).play(points))
    return tally, not tally.faults and tally.equal * POINTS >= MIN_EQUAL * points


if __name__ == "__main__":
    result, holds = main()
    print("\n".join([str(result), *result.faults]))
    raise SystemExit(0 if holds else 1)
