"""Random operations on four workers: isolation, no lost edit, each answer once, nothing erased."""

from __future__ import annotations

import pytest

from tests.e2e.fleet_model import FleetModel

# 200 with `make bench BENCH=faults`.
CYCLES = 20
# Which may run side by side; 100,000 with `make bench BENCH=model`.
STEPS, PARTS = 2_000, 2


@pytest.mark.parametrize("part", range(PARTS))
async def test_random_operations_on_four_workers_keep_every_promise(postgres_url, tmp_path, part):
    model = FleetModel(postgres_url, tmp_path, workers=4, seed=20 + 100 * part)
    async with model.running():
        await model.run(STEPS // PARTS)
    assert model.done["turn"] > STEPS / PARTS / 3
    assert model.done["repeat"]
    assert model.done["erase"]


async def test_a_worker_that_is_killed_under_load_takes_no_acknowledged_answer_with_it(
    postgres_url, tmp_path
):
    model = FleetModel(postgres_url, tmp_path, workers=3, seed=21)
    async with model.running():
        await model.kill_under_load(CYCLES)
    assert model.done["kill"] == CYCLES
    assert len(model.acknowledged) == model.done["turn"] > 10 * CYCLES
