"""A Postgres server that is restored to a moment, from a base backup and its log: each turn before
it that was acknowledged is there, none after, and what was erased after can be erased again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import time
from pathlib import Path

import pytest

from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import Chat, storage
from tests.gateway.cli.command import mnemogate
from tests.models import Model, text
from tests.postgres_server import SECONDS, PostgresServer, binaries

ADMIN = {"name": "root", "key": "sk-root-0123456789abcdef", "tenant": "acme", "admin": True}
MANAGED = {"keys": [ADMIN], "memory.extract": "off", "memory.read_deadline_ms": 10_000}


@pytest.fixture
def folder():
    """Not one of pytest's, which another run of it takes from the user who runs Postgres."""
    if binaries() is None:
        pytest.skip("postgres is not installed")
    with tempfile.TemporaryDirectory(prefix="mnemogate-restore-") as name:
        for server in ("lost", "new"):
            (Path(name) / server).mkdir()
        yield Path(name)


async def say(live, user, *words):
    chat = Chat()
    for one in words:
        await chat.say(live, one, stream="stream" in one, headers={"x-memory-user": user})


async def told(server, database, query):
    rows = await asyncio.to_thread(server.run, query, database=database)
    return [row[0] for row in rows]


async def keep_log(server, archive):
    """Wait until all of the log so far is in the archive."""
    name = "SELECT pg_walfile_name(pg_switch_wal())"
    newest = archive / (await asyncio.to_thread(server.run, name))[0][0]
    until = time.monotonic() + SECONDS
    while not newest.exists():
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


async def test_a_restore_to_a_moment_has_each_turn_before_it_and_erasures_can_be_repeated(
    folder, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("memory.session.recorder.TOGETHER_SECONDS", 20.0)
    caplog.set_level(logging.INFO, logger="mnemogate")
    lost, archive = PostgresServer(folder / "lost", safe=True), folder / "archive"
    await asyncio.to_thread(lost.create)
    await asyncio.to_thread(lost.start)
    try:
        await asyncio.to_thread(lost.archive_to, archive)
        url = await asyncio.to_thread(lost.database, stores.SECRET)
        database = url.rsplit("/", 1)[1]
        async with Model(text("so be it")) as up:
            settings = {**storage(url), **MANAGED}
            async with running(up.url, tmp_path / "before", settings, ADMIN["key"]) as live:
                await say(live, "ada", "before the backup")
                await asyncio.to_thread(lost.back_up_to, folder / "backup")
                users = ("ada", "bob", "eve")
                words = ("after it", "and in a stream", "and the last")
                await asyncio.gather(*(say(live, user, *words) for user in users))
                moment = (await told(lost, database, "SELECT clock_timestamp()::text"))[0]
                assert (await live.memory("DELETE", "/users/ada")).status_code == 200
                await say(live, "bob", "too late")
            await keep_log(lost, archive)
    finally:
        lost.stop()
    new = PostgresServer(folder / "new")
    try:
        await asyncio.to_thread(new.restore, folder / "backup", archive, moment)
        query = "SELECT content FROM messages WHERE role = 'user' ORDER BY content"
        expected = sorted(["before the backup", *words * 3])
        assert await told(new, database, query) == expected
        await erase_again(new.url(database), tmp_path, caplog)
        assert await told(new, database, query) == sorted(words * 2)
        await serve(new.url(database), tmp_path)
    finally:
        new.stop()


async def erase_again(url, tmp_path, caplog):
    """Repeat what the log says was erased."""
    log = tmp_path / "gateway.log"
    log.write_text("\n".join(json.dumps({"message": m}) for m in caplog.messages))
    again = ("db", "erase-again", str(log), "--json")
    done = await asyncio.to_thread(mnemogate, tmp_path / "cli", *again, **environment(url))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"logged": 1, "erased": 1}


async def serve(url, tmp_path):
    """A gateway serves what was restored, and the doctor finds nothing wrong with it."""
    after = {**storage(url), **MANAGED}
    async with (
        Model(text("so be it")) as up,
        running(up.url, tmp_path / "after", after, ADMIN["key"]) as live,
    ):
        await say(live, "ada", "who am I?")
        assert "after it" not in str(up.bodies[-1])
    seen = await asyncio.to_thread(
        mnemogate, tmp_path / "cli", "doctor", "--json", **environment(url)
    )
    (database,) = [row for row in json.loads(seen.stdout) if row["what"] == "database"]
    assert database["state"] == "ok", database


def environment(url):
    return {
        "MNEMOGATE_STORAGE__DATABASE": url,
        "MNEMOGATE_STORAGE__SECRET": stores.SECRET.hex(),
        "MNEMOGATE_STORAGE__VECTORS": "none",
    }
