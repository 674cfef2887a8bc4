"""The strictest of several modes, and the policies of users."""

import asyncio
import itertools

import pytest

from memory.session.policies import MODES, UserPolicies, strictest
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import policies as rows
from memory.stores.sql.rows.policies import PolicyEdit

ALLOWS = {"full": {"read", "write"}, "read": {"read"}, "write": {"write"}, "off": set()}


@pytest.mark.parametrize("modes", list(itertools.product(MODES, repeat=3)))
def test_the_strictest_mode_allows_what_all_allow(modes):
    assert ALLOWS[strictest(*modes)] == set.intersection(*(ALLOWS[m] for m in modes))


@pytest.fixture
async def db(tmp_path):
    found = Database(f"sqlite+aiosqlite:///{tmp_path / 'p.db'}")
    await found.open()
    yield found
    await found.close()


async def test_a_policy_holds_for_its_user_alone_and_from_the_next_request_on(db):
    policies = UserPolicies(db)
    assert await policies.find(("t", "ada")) == "full"
    await policies.put(("t", "ada"), PolicyEdit("off"))
    assert [await policies.find(w) for w in (("t", "ada"), ("t", "eve"), ("u", "ada"))] == [
        "off",
        "full",
        "full",
    ]
    await policies.put(("t", "ada"), PolicyEdit("read"))
    assert await policies.find(("t", "ada")) == "read"
    await policies.put(("t", "ada"), PolicyEdit("full"))
    assert not await db.read(rows.any_set)


async def test_a_read_that_a_change_overtakes_is_not_remembered(db, monkeypatch):
    policies = UserPolicies(db)
    await policies.put(("t", "eve"), PolicyEdit("off"))
    await policies.load()
    read = db.read

    async def late(work, *rest, **more):
        found = await read(work, *rest, **more)
        monkeypatch.setattr(db, "read", read)
        await policies.put(("t", "ada"), PolicyEdit("off"))
        return found

    monkeypatch.setattr(db, "read", late)
    await policies.find(("t", "ada"))
    assert await policies.find(("t", "ada")) == "off"


async def test_while_nobody_has_a_policy_nothing_is_read(db, monkeypatch):
    policies = UserPolicies(db)
    await policies.load()
    monkeypatch.setattr(db, "read", None)
    found = await asyncio.gather(*(policies.find(("t", f"u{i}")) for i in range(9)))
    assert set(found) == {"full"}
