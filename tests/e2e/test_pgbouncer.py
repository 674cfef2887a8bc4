"""A gateway behind PgBouncer: in transaction mode it works, whatever statements the pooler keeps;
in statement mode it says what to set.
"""

from __future__ import annotations

import asyncio

import pytest

from memory.errors import NotUpgraded
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.postgres.postgres_checks import NO_STATEMENTS
from memory.stores.sql.rows import scope_probe
from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import Chat, storage
from tests.models import Model, text
from tests.pgbouncer import PgBouncer, binary

# A pooler of four sessions on a busy machine: what is asked is whether it works, not how soon.
PATIENT = {"memory.read_deadline_ms": 20_000}


@pytest.fixture
def pooled(postgres_url, monkeypatch):
    """A function that starts a pooler, and returns it with a database's URL through it."""
    monkeypatch.setattr("memory.session.recorder.TOGETHER_SECONDS", 20.0)
    if binary() is None:
        pytest.skip("pgbouncer is not installed")
    made = []

    def start(**options):
        one = PgBouncer(stores.server().folder.parent, stores.server(), **options)
        made.append(one)
        one.start()
        return one, one.url(stores.direct(postgres_url))

    yield start
    for one in made:
        one.stop()


@pytest.mark.parametrize("statements", [512, 0])
async def test_many_users_at_two_gateways_share_few_sessions(
    pooled, data, tmp_path, caplog, statements
):
    """Each session serves both gateways in turn: what one prepared or set is not the other's."""
    pooler, url = await asyncio.to_thread(pooled, statements=statements)
    async with (
        Model(text("so be it")) as up,
        running(up.url, data, storage(url, **PATIENT)) as one,
        running(up.url, tmp_path / "other", storage(url, **PATIENT)) as two,
    ):

        async def talk(i):
            chat, who = Chat(), {"x-memory-user": f"user-{i}"}
            for turn in range(4):
                where = (one, two)[(i + turn) % 2]
                await chat.say(
                    where, f"words of {i} in turn {turn}", stream=i % 3 == 0, headers=who
                )
            put = {"value": f"likes tea {i}"}
            path = f"/users/user-{i}"
            assert (await one.memory("PUT", f"{path}/blocks/human", json=put)).status_code < 300
            await chat.say(two, "what do I like?", headers=who)
            await find_own(two, i)

        await asyncio.gather(*(talk(i) for i in range(8)))
        assert sum("likes tea" in str(b["messages"]) for b in up.bodies) == 8
    assert (NO_STATEMENTS in caplog.text) == (not pooler.keeps_statements)
    rows = stores.on_server(url, "SELECT count(*) FROM messages WHERE role = 'user'")
    assert rows[0][0] == 8 * 5


async def find_own(live, i):
    """A search finds all that this user said, once it is indexed, and nothing of another."""
    for _ in range(100):
        found = await live.memory("GET", f"/users/user-{i}/messages/search?q=words+turn&limit=50")
        hits = [h["content"] for h in found.json()["data"] if "words of" in h["content"]]
        assert all(h.startswith(f"words of {i} ") for h in hits)
        if len(hits) == 4:
            return
        await asyncio.sleep(0.1)
    pytest.fail("what was said is not found")


async def test_a_pooler_in_statement_mode_is_named_with_what_to_set(pooled):
    _, url = await asyncio.to_thread(pooled, mode="statement")
    with pytest.raises(NotUpgraded, match="Set its pool_mode to transaction"):
        await Database(url, secret=stores.SECRET).open()
    assert "pool_mode" in scope_probe.why_not_shared(url, stores.SECRET)
