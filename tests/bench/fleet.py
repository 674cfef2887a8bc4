"""Several workers on one Postgres database, at length: random operations, and faults."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests import stores
from tests.bench import rolling
from tests.e2e.fleet_faults import FAULTS, FaultyFleet
from tests.e2e.fleet_model import FleetModel

STEPS, CYCLES = 100_000, 200


def main(names: list[str], steps: int = STEPS, cycles: int = CYCLES) -> str:
    """Play what is named of `model`, `faults` and `rolling`; return what was done.

    Raises AssertionError.
    """
    try:
        return "\n".join(_play(name, steps, cycles) for name in names)
    finally:
        stores.drop_all()
        stores.stop()


def _play(name: str, steps: int, cycles: int) -> str:
    if name == "rolling":
        return rolling.main()
    if name == "faults":
        killed = _play_model(name, steps, cycles)
        return "\n".join([killed, *(asyncio.run(_fail(fault, cycles)) for fault in FAULTS)])
    return _play_model(name, steps, cycles)


async def _fail(fault: str, cycles: int) -> str:
    """Let what the workers share fail so many times."""
    fleet = FaultyFleet(seed=int(time.time()))
    async with fleet.running():
        await fleet.play(fault, cycles)
    slowest = max(fleet.recoveries)
    return (
        f"{fault}: {cycles} times, {fleet.done['ok']:,} answers kept once, "
        f"{fleet.done['degraded']:,} told to be without memory, none refused; "
        f"all well after {slowest:.1f} s at most"
    )


def _play_model(name: str, steps: int, cycles: int) -> str:
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
