"""A rolling upgrade on Postgres: the version before serves a database that a later one migrated,
while gateways are replaced under load. Later versions are played by the test.
"""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest

from memory.errors import NotUpgraded
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.schema import REVISION
from memory.stores.sql.engine.upgrade import upgrade
from memory.stores.sql.rows import scope_probe
from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import Chat, storage
from tests.models import Model, text

LATER = f"{int(REVISION) + 1:04}"
EXPANDED = (
    "ALTER TABLE nodes ADD COLUMN later text",
    "CREATE TABLE later (id bigint PRIMARY KEY)",
    f"UPDATE alembic_version SET version_num = '{LATER}'",
)
# Without what revisions 0008 and later added.
AS_BEFORE = (
    "DROP TABLE skill_uses, skill_versions, skills, reflections, reflection_runs",
    "DROP TABLE agent_turns",
    "ALTER TABLE usage DROP COLUMN agent",
    "DROP TABLE teams, team_members, projects, project_members",
    "ALTER TABLE scopes DROP COLUMN project",
    "ALTER TABLE user_policies DROP COLUMN layers",
    "ALTER TABLE user_policies DROP COLUMN timezone",
    "DROP TABLE shared_changes, shared_versions",
    "ALTER TABLE messages DROP COLUMN said_by",
    "ALTER TABLE passages DROP COLUMN written_by",
    "DROP TABLE python_tools, python_tool_versions",
    "DROP TABLE tool_calls, tool_results, tool_approvals, agent_inbox, call_records, tool_pins",
    "DROP TABLE file_chunks, file_grams, file_versions, file_passages, file_symbols",
    "DROP TABLE file_passage_terms, files",
    "ALTER TABLE user_policies DROP COLUMN tools",
    "ALTER TABLE epochs DROP COLUMN tools",
    "DROP TABLE agents, agent_versions",
    "DROP TABLE dropped, job_records, journal",
    "DROP INDEX ix_conversations_forks",
    "ALTER TABLE block_versions DROP COLUMN quote",
    "ALTER TABLE passages DROP COLUMN quote, DROP COLUMN speaker",
    "ALTER TABLE conversations DROP COLUMN opening, DROP COLUMN task",
    "ALTER TABLE responses DROP COLUMN thread",
    "DROP TABLE workers, schedules",
    "DROP INDEX uq_nodes_once",
    "ALTER TABLE nodes DROP COLUMN holder, DROP COLUMN once, DROP COLUMN runs",
    "ALTER TABLE generations DROP COLUMN erased_at",
    "ALTER TABLE usage DROP COLUMN parent",
    "UPDATE alembic_version SET version_num = '0007'",
)


def readable_by(revision):
    return (
        "DELETE FROM meta WHERE name = 'readable_by'",
        f"INSERT INTO meta (name, value) VALUES ('readable_by', '{revision}')",
    )


async def test_gateways_are_replaced_under_load_while_the_database_is_upgraded(
    postgres_url, tmp_path, monkeypatch
):
    # On a busy machine: what is asked is whether all is kept, not how soon.
    monkeypatch.setattr("memory.session.recorder.TOGETHER_SECONDS", 20.0)
    settings = storage(postgres_url, **{"memory.read_deadline_ms": 20_000})
    gateways = []
    turns = 0

    async def talk(user):
        nonlocal turns
        chat, who = Chat(), {"x-memory-user": user}
        for i in range(12):
            await chat.say(gateways[i % len(gateways)], f"{user} in turn {i}", headers=who)
            turns += 1
            await asyncio.sleep(0.02)

    async with Model(text("so be it")) as up, contextlib.AsyncExitStack() as opened:
        for i in range(2):
            one = running(up.url, tmp_path / f"old-{i}", settings)
            gateways.append(await opened.enter_async_context(one))
        load = asyncio.gather(*(talk(f"user-{i}") for i in range(4)))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(stores.on_server, postgres_url, *EXPANDED, *readable_by(REVISION))
        assert await asyncio.to_thread(upgrade, postgres_url) == REVISION
        for i in range(2):
            new = running(up.url, tmp_path / f"new-{i}", settings)
            gateways[i] = await opened.enter_async_context(new)
        await load
    assert turns == 48
    rows = stores.on_server(
        postgres_url, "SELECT count(*), count(DISTINCT content) FROM messages WHERE role = 'user'"
    )
    assert tuple(rows[0]) == (48, 48)
    assert stores.on_server(postgres_url, "SELECT version_num FROM alembic_version")[0][0] == LATER


async def test_a_version_that_cannot_read_the_tables_is_told_what_to_install(postgres_url):
    await asyncio.to_thread(stores.on_server, postgres_url, *EXPANDED, *readable_by(LATER))
    why = await asyncio.to_thread(scope_probe.why_not_shared, postgres_url, stores.SECRET)
    assert f"at version {LATER}" in why
    assert "install the newer Mnemogate" in why
    with pytest.raises(NotUpgraded, match="install the newer"):
        await Database(postgres_url, secret=stores.SECRET).open()


async def test_an_upgrade_waits_for_who_reads_and_one_is_made_at_a_time(postgres_url):
    await asyncio.to_thread(stores.on_server, postgres_url, *AS_BEFORE)
    with pytest.raises(NotUpgraded, match="run `mnemogate db upgrade`"):
        await Database(postgres_url, secret=stores.SECRET).open()
    raw = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
    reading = raw.transaction()
    await reading.start()
    await raw.execute("LOCK TABLE nodes IN ACCESS SHARE MODE")
    both = asyncio.gather(*(asyncio.to_thread(upgrade, postgres_url) for _ in range(2)))
    # Longer than it waits for a lock at once.
    await asyncio.sleep(2.5)
    assert not both.done()
    await reading.rollback()
    await raw.close()
    assert await both == [REVISION, REVISION]
    db = Database(postgres_url, secret=stores.SECRET)
    await db.open()
    await db.close()
