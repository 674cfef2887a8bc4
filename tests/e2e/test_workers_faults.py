"""Faults of what workers share: no answer fails for it, and nothing acknowledged is lost.

Twenty cycles of each, in parts that may run side by side. While one worker is cut off from Postgres
for longer than its lease is held, all that costs little time fails too.
"""

from __future__ import annotations

import pytest

from tests.e2e.fleet_faults import FaultyFleet
from tests.postgres_server import binaries

# 200 with `make bench BENCH=faults`.
CYCLES, PARTS = 20, 2
# For a recovery beside other tests; 5 with `make bench BENCH=faults`.
BUSY_SECONDS = 15.0
# Longer than a lease is held; 30 with `make bench BENCH=faults`.
CUT_SECONDS = 12.0
# So that other tests go on beside it.
PAUSE_SECONDS = 1.2
SHORT = ("stopped", "redis_killed", "redis_frozen", "skewed")


@pytest.fixture
def fleet(request, redis_binary):
    if binaries() is None:
        pytest.skip("postgres is not installed")
    return FaultyFleet(22 + request.param, cut=CUT_SECONDS, soon=BUSY_SECONDS, pause=PAUSE_SECONDS)


IN_PARTS = pytest.mark.parametrize("fleet", range(PARTS), indirect=True)


@IN_PARTS
async def test_no_fault_costs_an_answer_or_loses_what_was_promised(fleet):
    async with fleet.running():
        await fleet.play_beside_a_cut(SHORT, CYCLES // PARTS)
    assert {fleet.done[fault] for fault in (*SHORT, "cut_off")} == {CYCLES // PARTS}
    assert len(fleet.answers) > 50


@IN_PARTS
async def test_no_promotion_of_a_standby_loses_what_was_promised(fleet):
    async with fleet.running():
        await fleet.play("promoted", CYCLES // PARTS)
    assert fleet.done["promoted"] == CYCLES // PARTS
    assert len(fleet.answers) > 50
