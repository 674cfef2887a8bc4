"""Random operations on four workers: isolation, no lost edit, each answer once, nothing erased."""

from __future__ import annotations

from tests.e2e.fleet_model import FleetModel

STEPS = 2_000  # 100,000 with `make bench BENCH=model`


async def test_random_operations_on_four_workers_keep_every_promise(postgres_url, tmp_path):
    model = FleetModel(postgres_url, tmp_path, workers=4, seed=20)
    async with model.running():
        await model.run(STEPS)
    assert model.done["turn"] > STEPS / 3
    assert model.done["repeat"]
    assert model.done["erase"]
