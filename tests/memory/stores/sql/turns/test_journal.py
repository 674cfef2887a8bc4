"""The journal: what was appended is there for whoever reads, exactly once, whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections import Counter

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import func, select

from memory.conversation.history import Messages
from memory.errors import ErasedMeanwhile, MemoryFault
from memory.ids import new_id, new_key
from memory.management.users import erase_user
from memory.scope import Scope
from memory.service import Memory
from memory.session.request import Policy, TurnRequest
from memory.session.turn_record import TurnOutcome
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.turns import journal, journal_filer
from memory.stores.sql.turns.journal_entries import read_turn
from tests.memory.session.turns import BLOCKS

SECRET = b"s" * 32
USERS = ("ada", "bob")
numbers = itertools.count()


def scope_of(user):
    return Scope("t", user, "default", SECRET)


def waiting(conn):
    return conn.execute(select(func.count()).select_from(t.journal)).scalar()


class Household:
    """A gateway's memory, and what it acknowledged: per user, the texts of each conversation."""

    def __init__(self, folder):
        self.folder, self.lives = folder, 0
        self.said = {user: {} for user in USERS}
        self.open_sessions = []

    async def begin(self, path=None):
        path = path or self.folder / "life-0.db"
        self.path = path
        self.memory = Memory(Database(f"sqlite+aiosqlite:///{path}"), Policy(blocks=BLOCKS), SECRET)
        await self.memory.open()
        # Nothing is filed before somebody needs it.
        self.memory.db.filer.is_paused = True

    async def turn(self, user, number, *, opened):
        said = self.said[user].setdefault(number, [])
        history = [
            {"role": "user" if i % 2 == 0 else "assistant", "content": text}
            for i, text in enumerate(said)
        ]
        words = [f"{kind}{next(numbers)} of {user}" for kind in ("question", "answer")]
        asked, answer = (
            {"role": role, "content": text}
            for role, text in zip(("user", "assistant"), words, strict=True)
        )
        ask = TurnRequest(scope_of(user), Messages.of([*history, asked]), "m", new_id("req"))
        session = await self.memory.begin(ask)
        if opened or not session.can_defer_opening:
            await session.open()
        assert await session.finish(TurnOutcome([answer]))
        assert not session.is_late
        said += words

    async def turns(self, user, number):
        await self.turn(user, number, opened=False)

    async def streams(self, user, number):
        await self.turn(user, number, opened=True)

    async def together(self, user, number):
        """Turns of several conversations at once."""
        await asyncio.gather(*(self.turn(user, (number + i) % 3, opened=i == 1) for i in range(3)))

    async def file(self, user, number):
        await self.memory.db.filer.file()

    async def read(self, user, number):
        await self.check(user)

    async def search(self, user, number):
        """The newest message is found at once."""
        said = self.said[user].get(number)
        scope_id = await self.memory.db.read(lambda conn: scopes.find(conn, scope_of(user)))
        if said and scope_id is not None:
            hits = await self.memory.retrieval.messages(scope_id, SearchQuery(said[-1].split()[0]))
            assert said[-1] in [hit["content"] for hit in hits]

    async def crash(self, user, number):
        """Go on with the files as a process that is killed leaves them."""
        self.lives += 1
        left = self.folder / f"life-{self.lives}.db"
        for ending in ("", "-wal"):
            shutil.copy(f"{self.path}{ending}", f"{left}{ending}")
        await self.memory.close()
        await self.begin(left)

    async def second(self, user, number):
        """Another process opens the file beside this one, and files what waits."""
        beside = Database(f"sqlite+aiosqlite:///{self.path}")
        await beside.open()
        try:
            assert await beside.read(waiting) == 0
        finally:
            await beside.close()

    async def erase(self, user, number):
        await erase_user(self.memory, "t", user)
        self.said[user].clear()

    async def erase_under_way(self, user, number):
        """A turn that began before an erasure leaves nothing."""
        ask = TurnRequest(
            scope_of(user),
            Messages.of([{"role": "user", "content": f"late {next(numbers)} of {user}"}]),
            "m",
            new_id("req"),
        )
        session = await self.memory.begin(ask)
        await self.erase(user, number)
        try:
            await session.open()
            await session.finish(TurnOutcome([{"role": "assistant", "content": "late"}]))
        except MemoryFault:
            pass

    async def check(self, user):
        """Each acknowledged message is there once, in its order, and nothing else."""
        m, s = t.messages.c, t.scopes.c
        mine = select(m.content, m.conversation).join(t.scopes, s.id == m.scope_id)
        rows = await self.memory.db.read(
            lambda conn: conn.execute(mine.where(s.user == user).order_by(m.id)).all()
        )
        found = {}
        for row in rows:
            found.setdefault(row.conversation, []).append(row.content)
        acknowledged = [said for said in self.said[user].values() if said]
        assert Counter(map(tuple, found.values())) == Counter(map(tuple, acknowledged))

    async def end(self):
        for user in USERS:
            await self.check(user)
        assert await self.memory.db.read(waiting, of=NO_TURNS) == 0
        x = t.explains
        told = await self.memory.db.read(
            lambda conn: conn.execute(select(func.count()).select_from(x)).scalar()
        )
        turns = sum(len(said) // 2 for lines in self.said.values() for said in lines.values())
        assert told == turns
        await self.memory.close()


STEPS = (
    "turns",
    "streams",
    "together",
    "file",
    "read",
    "search",
    "crash",
    "second",
    "erase",
    "erase_under_way",
)
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(USERS), st.integers(0, 2)), max_size=14
)
ADA, BOB = USERS


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example([("turns", ADA, 0)] * 5)
@example([("streams", ADA, 0), ("streams", ADA, 0), ("crash", ADA, 0), ("streams", ADA, 0)])
@example([("turns", ADA, 0), ("turns", ADA, 0), ("erase", ADA, 0), ("turns", ADA, 0)])
@example([("turns", ADA, 0), ("turns", ADA, 0), ("second", ADA, 0), ("turns", ADA, 0)])
@example([("turns", ADA, 0), ("turns", ADA, 1), ("turns", ADA, 1), ("search", ADA, 1)])
@example([("turns", ADA, 0), ("turns", ADA, 0), ("erase_under_way", ADA, 0), ("turns", ADA, 0)])
@given(steps)
async def test_what_was_acknowledged_is_there_once(tmp_path_factory, steps):
    house = Household(tmp_path_factory.mktemp("journal"))
    await house.begin()
    for step, user, number in steps:
        await getattr(house, step)(user, number)
    await house.end()


@pytest.fixture
async def house(tmp_path):
    """Each user has had a turn, and nothing waits."""
    out = Household(tmp_path)
    await out.begin()
    for user in USERS:
        await out.turns(user, 0)
    await out.file(ADA, 0)
    yield out
    await out.memory.close()


async def test_a_warm_turn_is_one_row_of_the_journal(house):
    await house.turns(ADA, 0)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 1
    await house.streams(ADA, 0)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 3


async def test_the_first_turn_of_a_user_is_one_row_too(house):
    house.said["cy"] = {}
    await house.turns("cy", 0)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 1
    await house.check("cy")
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 0
    house.said["dan"] = {}
    await house.together("dan", 0)
    await house.check("dan")
    await house.crash("dan", 0)
    await house.check("dan")


async def test_the_turns_of_others_wait_for_more(house):
    for user in USERS:
        await house.turns(user, 0)
    await house.memory.db.read(waiting, of=scope_of("cy").key)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 2
    assert await house.memory.db.read(waiting, of=scope_of(ADA).key) == 1
    assert await house.memory.db.read(waiting, of=scope_of(ADA).key) == 1
    assert await house.memory.db.read(waiting) == 0


async def test_nothing_is_appended_for_a_user_who_was_erased_meanwhile(house, monkeypatch):
    """Else its client were told that the turn is kept, and filing dropped it."""
    await house.turns("ada", 0)
    entries, append, db = [], journal.Journal.append, house.memory.db
    monkeypatch.setattr(
        journal.Journal, "append", lambda *args: entries.append(args[2]) or append(*args)
    )
    await house.turns("ada", 0)
    last = entries[-1]

    def append_next(conn):
        values = {**last.values, "id": new_key(), "expected": last.values["head"]}
        return append(db.journal, conn, structs.replace(last, values=values))

    def append_behind_erasure(conn):
        generation = last.values["generation"] + 1
        owner = {"owner": last.values["owner"], "generation": generation}
        conn.execute(t.generations.insert().values(**owner))
        return append_next(conn)

    assert not await db.write(db.apart_from_turns(append_behind_erasure))
    await db.write(db.apart_from_turns(lambda conn: conn.execute(t.generations.delete())))
    assert await db.write(db.apart_from_turns(append_next))


async def test_rows_are_looked_up_together_as_one_by_one(house):
    # A new conversation, and one that goes on.
    await house.turns(ADA, 1)
    await house.turns(BOB, 0)

    def look_up(conn):
        rows = conn.execute(select(t.journal)).all()
        owners = {r.id: read_turn(r.id, r.scope_id, r.entry).first.owner for r in rows}
        together = [s._asdict() for s in scopes.statuses_of_rows(conn, owners)]
        alone = [
            scopes.scope_status(conn, owners[r.id], r.scope_id, r.conversation)._asdict()
            for r in rows
        ]
        return owners, together, alone

    db = house.memory.db
    owners, together, alone = await db.read(look_up, of=NO_TURNS)
    assert [status.pop("row") for status in together] == list(owners)
    assert {status.pop("generation") for status in alone} == {0}
    assert together == alone
    assert [status["conversation"] is None for status in together] == [True, False]

    def look_up_behind_erasure(conn):
        erased = next(iter(owners.values())).scope.owner
        conn.execute(t.generations.insert().values(owner=erased, generation=1))
        return scopes.statuses_of_rows(conn, owners)

    with pytest.raises(ErasedMeanwhile):
        await db.write(db.apart_from_turns(look_up_behind_erasure))


async def test_the_journal_is_bounded(house, monkeypatch):
    """At the bound a turn files before it is written."""
    monkeypatch.setattr(journal, "MOST_ROWS", 3)
    for _ in range(9):
        await house.turns(ADA, 0)
        assert await house.memory.db.read(waiting, of=NO_TURNS) <= 3
    await house.check(ADA)


async def test_a_row_that_cannot_be_filed_stays_and_holds_up_no_other(house, monkeypatch, caplog):
    for user in USERS:
        await house.turns(user, 0)
    write = journal.Journal._write

    def fail_for_bob(self, conn, turns):
        if any(turn.record.owner.scope.user == BOB for turn in turns):
            raise ValueError("a defect that quotes bob's words")
        write(self, conn, turns)

    monkeypatch.setattr(journal.Journal, "_write", fail_for_bob)
    await house.check(ADA)
    assert await house.memory.db.read(waiting) == 1
    assert "ValueError" in caplog.text
    assert "bob" not in caplog.text


async def test_turns_are_filed_together_once_they_are_old(house, monkeypatch):
    monkeypatch.setattr(journal_filer, "REST_SECONDS", 0.05)
    house.memory.db.filer.is_paused = False
    await house.turns(ADA, 0)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 1
    async with asyncio.timeout(10):
        while await house.memory.db.read(waiting, of=NO_TURNS):
            await asyncio.sleep(0.01)


async def test_a_journal_of_many_turns_is_filed_at_the_start(house, monkeypatch):
    monkeypatch.setattr(journal, "FILED_TOGETHER", 7)
    for _ in range(40):
        await house.turns(ADA, 0)
    await house.crash(ADA, 0)
    assert await house.memory.db.read(waiting, of=NO_TURNS) == 0
    await house.check(ADA)
