"""Several workers on one Postgres database, at length: random operations, and workers that die."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests import stores
from tests.e2e.fleet_model import FleetModel

STEPS, CYCLES = 100_000, 200


def main(names: list[str], steps: int = STEPS, cycles: int = CYCLES) -> str:
    """Play what is named, `model` or `faults`; return what was done. Raises AssertionError."""
    try:
        return "\n".join(_play(name, steps, cycles) for name in names)
    finally:
        stores.drop_all()
        stores.stop()


def _play(name: str, steps: int, cycles: int) -> str:
    begun = time.time()
    model = asyncio.run(_run(name, steps, cycles))
    done = ", ".join(f"{count:,} {what}" for what, count in model.done.most_common())
    return f"{name}: every promise held; {done}; {time.time() - begun:.0f} s"


async def _run(name: str, steps: int, cycles: int) -> FleetModel:
    with tempfile.TemporaryDirectory(prefix="mnemogate-fleet-") as folder:
        model = FleetModel(stores.server_url(), Path(folder), workers=4, seed=int(time.time()))
        async with model.running():
            if name == "model":
                await model.run(steps)
            else:
                await model.kill_under_load(cycles)
    return model
