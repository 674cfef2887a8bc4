"""Faults of what workers share: no answer fails for it, and nothing acknowledged is lost."""

from __future__ import annotations

import pytest

from tests.e2e.fleet_faults import FaultyFleet
from tests.postgres_server import binaries

BUSY_SECONDS = 15.0  # for a recovery beside other tests; 5 with `make bench BENCH=faults`
CUT_SECONDS = 12.0  # longer than a lease is held; 30 with `make bench BENCH=faults`


@pytest.mark.parametrize(
    "faults",
    [
        {"stopped": 2, "redis_killed": 2, "redis_frozen": 2, "skewed": 3},
        {"promoted": 1, "cut_off": 1},
    ],
    ids=lambda faults: " ".join(faults),
)
async def test_no_fault_costs_an_answer_or_loses_what_was_promised(faults, redis_binary):
    if binaries() is None:
        pytest.skip("postgres is not installed")
    fleet = FaultyFleet(seed=22, cut=CUT_SECONDS, soon=BUSY_SECONDS)
    async with fleet.running():
        for fault, cycles in faults.items():
            await fleet.play(fault, cycles)
            assert fleet.done[fault] == cycles
    assert len(fleet.answers) > 50
