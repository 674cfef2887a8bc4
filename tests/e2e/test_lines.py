"""What a turn leaves for the next one of its conversation: that one reads nothing, and is told all
that was changed meanwhile.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from memory.stores.sql.engine.database import Database
from memory.stores.sql.turns import turn_reader
from tests.conftest import running
from tests.e2e.test_background import settled
from tests.models import Model, call, calls, text

# Extraction reads an idle conversation, and a slow machine is idle within one.
UNREAD = {"memory.extract": "off"}


def token(data):
    return {"authorization": f"Bearer {(data / 'token').read_text().strip()}"}


def append(what):
    return calls(call("core_memory_append", {"label": "human", "content": what}, f"c-{what}"))


def answer(seen, wire):
    """Does what the user says: `note X` is noted, `find X` looked for."""
    last = seen.json["messages"][-1]
    if last["role"] == "user":
        verb, _, what = last["content"].split("\n")[0].partition(" ")
        if verb == "note":
            return append(what)
        if verb == "find":
            return calls(call("archival_memory_search", {"query": what}, "c-find"))
    return text("so be it")


class Talk:
    """newest: how many messages are resent."""

    def __init__(self, live, user="ada", newest=0):
        self.live, self.user, self.newest, self.history = live, user, newest, []

    async def say(self, words):
        self.history.append({"role": "user", "content": words})
        response = await self.live.chat(self.history[-self.newest :], user=self.user)
        assert response.status_code == 200, response.text
        assert response.headers["x-memory-status"] == "ok"
        self.thread = response.headers["x-memory-conversation"]
        self.history.append(response.json()["choices"][0]["message"])


@pytest.fixture
def reads(monkeypatch):
    """The snapshots that were read."""
    found = []
    snapshot = turn_reader.snapshot
    monkeypatch.setattr(
        turn_reader, "snapshot", lambda conn, ask: found.append(ask) or snapshot(conn, ask)
    )
    return found


def shown(up):
    """All that the newest request says."""
    return str(up.bodies[-1]["messages"])


async def test_the_turn_after_an_edit_reads_nothing_and_is_told_of_it(data, reads):
    async with Model(answer) as up, running(up.url, data, UNREAD) as live:
        talk = Talk(live)
        await talk.say("hello")
        # The chores of the start.
        await asyncio.sleep(0.2)
        await talk.say("hello again")
        reads.clear()
        for words in ("note tea", "what now", "note cake", "find tea", "and now"):
            await talk.say(words)
        assert not reads
        assert "tea" in shown(up)
        assert "cake" in shown(up)
        (_, epoch) = [
            m["content"]
            for m in up.bodies[-1]["messages"]
            if m["role"] == "user" and "<memory_updates" in m["content"]
        ]
        assert "cake" in epoch


def counting():
    """A model that never says the same twice, but `again` where it is asked to."""
    said = iter(range(1000))
    return Model(
        lambda seen, wire: text(
            "again" if seen.json["messages"][-1]["content"] == "again" else f"answer {next(said)}"
        )
    )


@pytest.mark.parametrize("newest", [2, 3, 10])
async def test_a_client_that_trims_its_history_is_known_again_and_reads_nothing(
    data, reads, newest
):
    async with counting() as up, running(up.url, data, UNREAD) as live:
        talk = Talk(live, newest=newest)
        for i in range(3):
            await talk.say(f"hello {i}")
        # The chores of the start.
        await asyncio.sleep(0.2)
        await talk.say("hello")
        reads.clear()
        thread = talk.thread
        for i in range(10):
            await talk.say(f"question {i}")
            assert talk.thread == thread
        assert not reads


async def test_a_line_that_a_write_overtakes_while_the_store_is_asked_whose_it_is_goes(
    data, monkeypatch
):
    waits = []
    read = Database.read

    async def overtaken(self, work, deadline=None, **options):
        found = await read(self, work, deadline, **options)
        if waits and getattr(work, "func", None) is turn_reader.only_node:
            await waits.pop()
        return found

    monkeypatch.setattr(Database, "read", overtaken)
    async with counting() as up, running(up.url, data) as live:
        talk = Talk(live, newest=2)
        for words in ("hello", "hello again"):
            await talk.say(words)
        # The chores of the start.
        await asyncio.sleep(0.2)
        await talk.say("and again")
        waits.append(
            live.memory(
                "PUT", "/users/ada/blocks/human", json={"value": "coffee"}, headers=token(data)
            )
        )
        await talk.say("what now")
        assert not waits
        assert "coffee" in shown(up)
        assert live.gateway.memory.lines.byte_count >= 0


async def test_an_answer_that_was_given_elsewhere_too_is_looked_for(data, reads):
    async with counting() as up, running(up.url, data) as live:
        one, other = Talk(live, newest=2), Talk(live, newest=2)
        for talk in (one, other, one, other):
            await talk.say(f"hello from {'one' if talk is one else 'other'}")
        assert one.thread != other.thread
        await other.say("again")
        await one.say("again")
        reads.clear()
        await other.say("what now")
        assert len(reads) == 1


async def test_an_edit_in_one_conversation_is_told_in_the_others(data):
    async with Model(answer) as up, running(up.url, data) as live:
        one, other = Talk(live), Talk(live)
        for talk in (one, other):
            await talk.say("hello from " + ("one" if talk is one else "other"))
        for turn in range(4):
            await (one if turn % 2 else other).say(f"note fact-{turn}")
            await (other if turn % 2 else one).say("what now")
            assert f"fact-{turn}" in shown(up)


async def test_what_others_edit_during_a_turn_with_an_edit_of_its_own_is_told_in_the_next(
    data,
):
    go = asyncio.Event()

    async def late():
        await go.wait()
        return text("so be it")

    def slow(seen, wire):
        waits = seen.json["messages"][-1]["role"] == "tool" and any(
            "note slowly" in str(m.get("content")) for m in seen.json["messages"]
        )
        return late() if waits and not go.is_set() else answer(seen, wire)

    async with Model(slow) as up, running(up.url, data) as live:
        one, other = Talk(live), Talk(live)
        for talk in (one, other):
            await talk.say("hello from " + ("one" if talk is one else "other"))
        under_way = asyncio.create_task(one.say("note slowly"))
        while not any(m.get("role") == "tool" for m in up.bodies[-1]["messages"]):
            await asyncio.sleep(0.01)
        await other.say("note meanwhile")
        done = await live.memory(
            "POST",
            "/users/ada/passages",
            json={"content": "a passage from outside"},
            headers=token(data),
        )
        assert done.status_code < 300, done.text
        go.set()
        await under_way
        await one.say("what now")
        assert "slowly" in shown(up)
        assert "meanwhile" in shown(up)
        await other.say("and here")
        assert "slowly" in shown(up)
        assert "meanwhile" in shown(up)


async def test_an_edit_from_outside_between_two_turns_is_told_at_once(data):
    async with Model(answer) as up, running(up.url, data) as live:
        talk = Talk(live)
        await talk.say("note tea")
        for value in ("coffee", "milk"):
            assert (
                await live.memory(
                    "PUT", "/users/ada/blocks/human", json={"value": value}, headers=token(data)
                )
            ).status_code < 300
            await talk.say("what now")
            assert value in shown(up)
            assert "tea</human>" not in shown(up)


async def test_what_was_taken_out_from_outside_while_a_turn_edits_too_is_never_sent_again(data):
    go = asyncio.Event()

    async def late():
        await go.wait()
        return append("milk")

    def slow(seen, wire):
        return (
            late()
            if seen.json["messages"][-1]["content"].startswith("note late")
            else answer(seen, wire)
        )

    async with Model(slow) as up, running(up.url, data) as live:
        talk = Talk(live)
        await talk.say("note tea")
        await talk.say("what now")
        under_way = asyncio.create_task(talk.say("note late"))
        while not up.bodies[-1]["messages"][-1]["content"].startswith("note late"):
            await asyncio.sleep(0.01)
        assert (
            await live.memory(
                "PUT", "/users/ada/blocks/human", json={"value": "coffee"}, headers=token(data)
            )
        ).status_code < 300
        go.set()
        await under_way
        await talk.say("and now")
        assert "\ncoffee\nmilk\n</human>" in up.bodies[-1]["messages"][0]["content"]
        assert "tea</human>" not in shown(up)


async def test_a_fact_that_a_job_gathers_is_told_next_and_costs_nobody_else_a_read(data, reads):
    def gathering(seen, wire):
        if not str(seen.json["messages"][0]["content"]).startswith("You keep the long-term"):
            return text("so be it")
        found = {"op": "add", "text": "Likes kumquats.", "quote": "I like kumquats."}
        return json.dumps({"operations": [{**found, "type": "preference"}]})

    config = {"memory.extract": "always", "memory.extraction.every_turns": 2}
    async with Model(gathering) as up, running(up.url, data, config) as live:
        ada, bob = Talk(live), Talk(live, "bob")
        await ada.say("good morning")
        # The chores of the start.
        await asyncio.sleep(0.2)
        await bob.say("good morning")
        await ada.say("I like kumquats.")
        await ada.say("What can you tell me of trees?")
        await settled(live)
        reads.clear()
        await bob.say("good evening")
        assert not reads
        await ada.say("And now?")
        assert len(reads) == 1
        assert "Likes kumquats." in shown(up)
