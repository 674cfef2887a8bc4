"""Two workers on one Postgres database: who goes on with a turn, and that nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from memory.stores.sql.engine.postgres import postgres_lease
from tests import stores
from tests.conftest import SENTINEL_KEY, running
from tests.e2e.postgres_chat import ADA, Chat, storage
from tests.e2e.round_trips import CountingProxy
from tests.models import Model, call, calls, text
from tests.sockets import within

SAID = [{"role": "user", "content": "hello"}]
# Appends at once, of two workers.
BURST = 50
# Each of four ways to talk: 1,000 edits in all.
EDITS, USERS = 250, 10


@contextlib.asynccontextmanager
async def two(url, folder, up, **more):
    """Two gateways on one database."""
    async with (
        running(up.url, folder / "one", storage(url, **more)) as one,
        running(up.url, folder / "two", storage(url, **more)) as other,
    ):
        await one.gateway.memory.wait_until_ready()
        await other.gateway.memory.wait_until_ready()
        yield one, other


class Held:
    """A model that answers when it is let."""

    def __init__(self, *answers):
        self.free, self.asked, self.answers = asyncio.Event(), 0, answers or ("so be it",)

    async def __call__(self, seen, wire):
        self.asked += 1
        number = self.asked
        await self.free.wait()
        return text(self.answers[(number - 1) % len(self.answers)])


def answers(url):
    query = "SELECT content FROM messages WHERE source = 'answer' ORDER BY id"
    return [row[0] for row in stores.on_server(url, query)]


async def opened(url):
    held = "SELECT count(*) FROM nodes WHERE holder IS NOT NULL"
    assert await within(5, lambda: stores.on_server(url, held)[0][0] == 1)


async def test_one_idempotency_key_at_two_workers_at_once_is_one_answer(postgres_url, tmp_path):
    model = Held("first", "second")
    key = {**ADA, "idempotency-key": "k1"}
    async with Model(model) as up, two(postgres_url, tmp_path, up) as (one, other):
        both = [asyncio.ensure_future(live.chat(SAID, key)) for live in (one, other)]
        await opened(postgres_url)
        await asyncio.sleep(0.5)
        assert model.asked == 1
        model.free.set()
        found = [await each for each in both]
        assert [r.status_code for r in found] == [200, 200]
        assert len(answers(postgres_url)) == 1
        rows = stores.on_server(postgres_url, "SELECT holder, once, state FROM nodes")
        assert [tuple(row) for row in rows] == [(None, None, "done")]


async def test_appends_of_one_user_at_once_on_two_workers_all_survive(postgres_url, tmp_path):
    def append(seen, wire):
        newest = seen.json["messages"][-1]
        if newest["role"] == "tool" or not newest["content"].startswith("I have "):
            return text("noted")
        content = newest["content"].split(" <")[0]
        return calls(call("core_memory_append", {"label": "human", "content": content}))

    async with Model(append) as up, two(postgres_url, tmp_path, up) as pair:
        assert (await pair[0].chat(SAID, ADA)).status_code == 200
        facts = [f"I have thing {i:02d}" for i in range(BURST)]
        answered = await asyncio.gather(
            *(
                pair[i % 2].chat([{"role": "user", "content": fact}], ADA)
                for i, fact in enumerate(facts)
            )
        )
        assert {(r.status_code, r.headers["x-memory-status"]) for r in answered} == {(200, "ok")}
        query = "SELECT value FROM blocks WHERE label = 'human'"
        [[value]] = stores.on_server(postgres_url, query)
        assert sorted(value.split("\n")) == facts


async def test_what_a_tool_did_for_one_idempotency_key_is_done_once(postgres_url, tmp_path):
    note = call("archival_memory_insert", {"content": "Ada likes tea."})
    asked = []

    async def answer(seen, wire):
        asked.append(seen.json["messages"][-1]["role"])
        await asyncio.sleep(0.2)
        return calls(note) if asked[-1] == "user" else text("noted")

    key = {**ADA, "idempotency-key": "k1"}
    async with Model(answer) as up, two(postgres_url, tmp_path, up) as (one, other):
        found = await asyncio.gather(*(live.chat(SAID, key) for live in (one, other)))
        assert [r.json()["choices"][0]["message"]["content"] for r in found] == ["noted"] * 2
    assert asked.count("user") == 1
    assert stores.on_server(postgres_url, "SELECT count(*) FROM passages")[0][0] == 1
    assert answers(postgres_url) == ["noted"]


async def test_two_tabs_with_the_same_words_keep_both_answers_and_both_go_on(
    postgres_url, tmp_path
):
    model = Held("left", "right")
    async with Model(model) as up, two(postgres_url, tmp_path, up) as (one, other):
        asking = [asyncio.ensure_future(live.chat(SAID, ADA)) for live in (one, other)]
        assert await within(5, lambda: model.asked == 2)
        model.free.set()
        found = [(await each).json()["choices"][0]["message"] for each in asking]
        assert sorted(m["content"] for m in found) == ["left", "right"]
        assert sorted(answers(postgres_url)) == ["left", "right"]
        for live, said in ((other, found[0]), (one, found[1])):
            chat = Chat()
            chat.history = [*SAID, said]
            await chat.say(live, "and now?")
            assert await within(5, lambda said=said: said["content"] in str(up.bodies[-1]))
    parents = stores.on_server(
        postgres_url, "SELECT count(DISTINCT parent) FROM nodes WHERE parent IS NOT NULL"
    )
    assert parents[0][0] == 2


async def test_who_continues_an_answer_second_at_another_worker_has_a_fork(postgres_url, tmp_path):
    model = Held("so be it")
    model.free.set()
    async with Model(model) as up, two(postgres_url, tmp_path, up) as (one, other):
        chat = Chat()
        await chat.say(one, "hello")
        await chat.say(other, "hello again")
        before = list(chat.history)
        model.free.clear()
        asking = [
            asyncio.ensure_future(
                live.chat([*before, {"role": "user", "content": f"way {name}"}], ADA)
            )
            for live, name in ((one, "left"), (other, "right"))
        ]
        assert await within(5, lambda: model.asked == 4)
        model.free.set()
        found = [await each for each in asking]
        assert [r.headers["x-memory-status"] for r in found] == ["ok", "ok"]
    rows = stores.on_server(postgres_url, "SELECT forked_from FROM conversations ORDER BY id")
    assert [row[0] is None for row in rows] == [True, False]
    per = stores.on_server(
        postgres_url,
        "SELECT count(*) FROM messages WHERE content LIKE 'way %' GROUP BY conversation",
    )
    assert [row[0] for row in per] == [1, 1]


async def test_a_retry_at_another_worker_takes_over_from_one_that_is_gone(
    postgres_url, tmp_path, monkeypatch
):
    model = Held("first", "second")
    again = {**ADA, "x-stainless-retry-count": "1"}
    async with Model(model) as up, two(postgres_url, tmp_path, up) as (one, other):
        first = asyncio.ensure_future(one.chat(SAID, ADA))
        await opened(postgres_url)
        retry = asyncio.ensure_future(other.chat(SAID, again))
        await asyncio.sleep(0.7)
        # It waits for the first.
        assert model.asked == 1
        monkeypatch.setattr(postgres_lease, "BEAT_SECONDS", 3600.0)
        gone = one.gateway.memory.db.lease.incarnation
        silent = f"UPDATE workers SET seen_at = seen_at - 16 WHERE incarnation = {gone}"
        stores.on_server(postgres_url, silent)
        assert await within(5, lambda: model.asked == 2)
        model.free.set()
        assert (await retry).headers["x-memory-status"] == "ok"
        assert (await first).status_code == 200
    # Each acknowledged one is kept.
    assert sorted(answers(postgres_url)) == ["first", "second"]
    rows = stores.on_server(postgres_url, "SELECT count(*), count(holder) FROM nodes")
    assert tuple(rows[0]) == (2, 0)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("newest", [False, True], ids=["history", "newest"])
async def test_each_edit_of_1000_is_in_the_request_to_another_worker_that_begins_at_once(
    postgres_url, tmp_path, monkeypatch, newest, stream
):
    """Ten users side by side, each with an edit at one worker and a turn at the other."""
    # On a busy machine: what is asked is what a request holds, not how soon it is stored.
    monkeypatch.setattr("memory.session.recorder.TOGETHER_SECONDS", 20.0)
    sent = {}

    def answer(seen, wire):
        messages = seen.json["messages"]
        sent[messages[-1]["content"].split()[0]] = str(messages)
        return text("so be it")

    async def edit_and_ask(lives, user):
        who, found = {"x-memory-user": user}, 0
        for i in range(EDITS // USERS):
            if i % 8 == 0:
                chat = Chat()
                chat.newest, who["x-memory-conversation"] = newest, f"talk-{i}"
            here, there = lives[i % 2], lives[(i + 1) % 2]
            edited = await here.memory(
                "PUT", f"/users/{user}/blocks/human", json={"value": f"tea number {i}."}
            )
            assert edited.status_code in (200, 201), edited.text
            await chat.say(there, f"{user} in turn {i}", stream, who)
            found += f"tea number {i}." in sent[user]
        return found

    patient = {"memory.read_deadline_ms": 20_000, "memory.extract": "off"}
    async with Model(answer) as up, two(postgres_url, tmp_path, up, **patient) as lives:
        # Who may manage is known by what the upstream accepted.
        for live in lives:
            await Chat().say(live, "hello")
        found = await asyncio.gather(*(edit_and_ask(lives, f"user-{i}") for i in range(USERS)))
        assert sum(found) == EDITS


async def test_a_policy_that_one_worker_is_given_holds_at_the_other_within_a_second(
    postgres_url, tmp_path
):
    async with Model(text("so be it")) as up, two(postgres_url, tmp_path, up) as (one, other):
        chat = Chat()
        await chat.say(other, "hello")
        put = await one.memory("PUT", "/users/ada/policy", json={"memory": "off"})
        assert put.status_code == 200, put.text
        await asyncio.sleep(1.5)
        assert (await other.chat(SAID, ADA)).headers["x-memory-status"] == "off"


async def test_the_name_of_an_erased_user_is_written_by_no_worker(
    postgres_url, tmp_path, monkeypatch
):
    monkeypatch.setattr("gateway.usage.log.INTERVAL", 1.0)
    async with Model(text("so be it")) as up, two(postgres_url, tmp_path, up) as (one, other):
        # Its record waits there.
        await Chat().say(other, "hello")
        assert (await one.memory("DELETE", "/users/ada")).status_code == 200
        await other.gateway.usage.flush()
    rows = stores.on_server(postgres_url, 'SELECT count(*), count("user") FROM usage')
    assert tuple(rows[0]) == (1, 0)


async def test_a_periodic_job_is_queued_by_one_of_the_workers(postgres_url, tmp_path):
    async with Model(text("so be it")) as up, two(postgres_url, tmp_path, up):
        schedules = "SELECT count(*) FROM schedules WHERE kind = 'expire'"
        assert await within(5, lambda: stores.on_server(postgres_url, schedules)[0][0] == 1)
    rows = stores.on_server(postgres_url, "SELECT max(id) FROM jobs")
    assert (rows[0][0] or 0) <= 2


async def test_what_a_worker_could_not_store_is_stored_when_the_store_is_back(
    postgres_url, tmp_path
):
    model = Held()
    async with (
        CountingProxy(postgres_url) as proxy,
        Model(model) as up,
        running(up.url, tmp_path / "one", storage(proxy.url)) as live,
    ):
        await live.gateway.memory.wait_until_ready()
        asking = asyncio.ensure_future(live.chat(SAID, ADA, stream=True))
        await opened(postgres_url)
        proxy.passes.clear()
        model.free.set()
        assert (await asking).status_code == 200
        assert answers(postgres_url) == []
        proxy.passes.set()
        assert await within(15, lambda: answers(postgres_url) == ["so be it"])
        assert await within(5, lambda: not (tmp_path / "one" / "spill.ndjson").exists())


async def test_a_key_that_one_worker_revoked_is_refused_by_the_other(postgres_url, tmp_path):
    admin = {"keys": [{"name": "root", "key": SENTINEL_KEY, "tenant": "t", "admin": True}]}
    async with Model(text("so be it")) as up, two(postgres_url, tmp_path, up, **admin) as lives:
        one, other = lives
        made = await one.memory("POST", "/keys", json={"name": "app", "tenant": "t"})
        assert made.status_code in (200, 201), made.text
        mine = {"authorization": f"Bearer {made.json()['key']}", **ADA}

        async def status():
            return (await other.chat(SAID, mine)).status_code

        await asyncio.sleep(1.5)
        assert await status() == 200
        assert (await one.memory("DELETE", f"/keys/{made.json()['id']}")).status_code == 200
        await asyncio.sleep(1.5)
        assert await status() == 401
