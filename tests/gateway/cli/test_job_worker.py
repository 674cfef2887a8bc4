"""`mnemogate jobs run`: background jobs in a process that answers no request."""

from __future__ import annotations

import asyncio

from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import ADA, Chat, storage
from tests.gateway.cli.command import mnemogate, started
from tests.models import Model, text
from tests.sockets import within

JOBS = "SELECT count(*) FROM jobs WHERE kind = 'reindex'"


async def test_jobs_wait_for_a_process_that_runs_them(postgres_url, data, tmp_path):
    settings = storage(postgres_url, **{"server.jobs": "false"})
    async with Model(text("so be it")) as up, running(up.url, data, settings) as live:
        await Chat().say(live, "hello")
        stores.on_server(
            postgres_url,
            "INSERT INTO jobs (kind, payload, state, run_at, attempts, created_at) "
            "VALUES ('reindex', '{}', 'ready', 0, 0, 0)",
        )
        await asyncio.sleep(1.5)
        assert stores.on_server(postgres_url, JOBS)[0][0] == 1
        told = {
            "MNEMOGATE_STORAGE__DATABASE": postgres_url,
            "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex(),
        }
        with started(tmp_path / "jobs", "jobs", "run", **told) as process:
            done = await within(15, lambda: stores.on_server(postgres_url, JOBS)[0][0] == 0)
            assert done, process.lines
            assert await asyncio.to_thread(process.stopped) == 0, process.lines
        assert (await live.chat("still there?", ADA)).status_code == 200


def test_the_gateway_of_a_sqlite_file_runs_its_jobs_itself(tmp_path):
    found = mnemogate(tmp_path, "jobs", "run")
    assert found.returncode == 2
    assert "postgresql+asyncpg" in found.stderr
