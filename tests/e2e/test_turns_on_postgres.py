"""What a turn on Postgres costs, and that its one statement writes what the transaction would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import asyncpg
import pytest

from memory.stores.sql.engine.postgres.postgres import PostgresConnection
from memory.stores.sql.engine.statements import execute_sql
from memory.stores.sql.turns import turn_prefetch, turn_reader, turn_statement
from memory.stores.sql.turns.turn_reader import Snapshot
from tests import stores
from tests.conftest import running
from tests.e2e.postgres_chat import ADA, Chat, storage
from tests.e2e.round_trips import CountingProxy
from tests.models import Model, call, calls, text
from tests.sockets import within

QUIET = {"memory.recall": "tools", "memory.extract": "off"}
# Round trips before the upstream is called, and after it until the answer has been read.
ROUND_TRIPS = {
    "plain": (1, 1),
    "stream": (1, 2),
    "named conversation": (1, 1),
    "nobody named": (1, 1),
    "off": (0, 0),
}


async def stop_jobs(live):
    """End the jobs of the start: some have the memory to themselves, so a turn waits."""
    await live.gateway.memory.wait_until_ready()
    await live.stop_worker()


@contextlib.asynccontextmanager
async def counted(postgres_url, data, monkeypatch, **more):
    """A gateway behind a proxy that counts, with nothing going on beside the turns.

    Yields it and what returns the round trips before and after the upstream call of a request.
    """
    monkeypatch.setattr("gateway.usage.log.INTERVAL", 3600.0)
    monkeypatch.setattr("memory.stores.sql.engine.postgres.postgres_lease.BEAT_SECONDS", 3600.0)
    monkeypatch.setattr("memory.stores.sql.engine.postgres.postgres_lease.HOLD_SECONDS", 3600.0)
    async with CountingProxy(postgres_url) as proxy:
        called = []

        def answer(seen, wire):
            called.append(proxy.ready)
            return text("so be it")

        async with (
            Model(answer) as up,
            running(up.url, data, storage(proxy.url, **more)) as live,
        ):
            await stop_jobs(live)
            live.gateway.memory.retrieval.indexing.notify_added = lambda: None
            await live.gateway.keys.key_store.stop()

            async def trips(request):
                await asyncio.sleep(0.05)
                start = proxy.ready
                await request
                return called[-1] - start, proxy.ready - called[-1]

            yield live, trips


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize("settings", [{}, QUIET])
async def test_a_warm_turn_costs_the_round_trips_of_the_table(
    postgres_url, data, monkeypatch, way, settings
):
    """Also with what the default settings queue after a turn."""
    async with counted(postgres_url, data, monkeypatch, **settings) as (live, trips):
        chat, found = Chat(), []
        headers = {} if way == "nobody named" else dict(ADA)
        if way == "named conversation":
            headers["x-memory-conversation"] = "tea"
        for i in range(8):
            if way == "off":
                found.append(await trips(live.chat("hello", {**ADA, "x-memory": "off"})))
            else:
                chat.newest = way == "named conversation"
                said = chat.say(live, f"and then, {i}?", way == "stream", headers)
                found.append(await trips(said))
    assert found[-4:] == [ROUND_TRIPS[way]] * 4


@pytest.mark.parametrize("headers", [ADA, {}])
async def test_a_cold_turn_asks_once_or_twice_before_the_upstream(
    postgres_url, data, tmp_path, monkeypatch, headers
):
    """The last turn was at another gateway, so this one kept nothing that holds."""
    other = tmp_path / "other"
    async with (
        counted(postgres_url, data, monkeypatch, **QUIET) as (one, trips),
        counted(postgres_url, other, monkeypatch, **QUIET) as (two, trips_there),
    ):
        chat, found = Chat(), []
        for i in range(6):
            here = chat.say(one, f"and then, {i}?", headers=headers)
            found.append(await trips(here))
            there = chat.say(two, f"and then, {i}?", headers=headers)
            found.append(await trips_there(there))
    # What was kept here is compared first, and found to be outdated.
    assert {before for before, _ in found[-4:]} <= {1, 2}
    assert {after for _, after in found[-4:]} == {1}


async def test_what_is_read_at_once_is_what_the_transaction_reads(
    postgres_url, data, tmp_path, monkeypatch
):
    read, found = turn_prefetch.snapshot, []

    def both(conn, ask):
        at_once = read(conn, ask)
        if at_once is not None:
            in_turn = turn_reader.snapshot(conn, ask)
            for name in Snapshot.__slots__:
                assert getattr(at_once, name) == getattr(in_turn, name), name
        found.append(at_once)
        return at_once

    monkeypatch.setattr(turn_prefetch, "snapshot", both)
    note = call("core_memory_append", {"label": "human", "content": "likes tea"})

    def answer(seen, wire):
        asked = seen.json["messages"]
        wanted = asked[-1]["role"] == "user" and "remember" in str(asked[-1]["content"])
        return calls(note) if wanted else text(f"answer {len(asked)}")

    async with (
        Model(answer) as up,
        running(up.url, data, storage(postgres_url)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url)) as two,
    ):
        for headers in (ADA, {}, {**ADA, "x-memory-conversation": "tea"}):
            chat = Chat()
            for i, live in enumerate((one, two) * 3):
                await chat.say(live, f"{'remember' if i % 2 else 'say'} {i}", headers=headers)
            branch = Chat()
            branch.history = chat.history[:4]
            await branch.say(one, "something else", headers=headers)
            # Trimmed.
            branch.history = branch.history[2:]
            await branch.say(two, "and on", headers=headers)
            # A retry.
            again = await two.chat(chat.history[:3], headers)
            assert again.headers["x-memory-status"] == "ok"
    assert len([x for x in found if x is not None]) >= 20


NAMED = {**ADA, "x-memory-conversation": "tea"}
# Row keys are greater, and so are no counts.
KEY = 1 << 50


async def converse(url, data):
    """Say what the statement can write: plain and streamed, named and not, with jobs and uses."""
    settings = {"memory.extract": "always", "memory.recall": "always"}
    async with (
        Model(text("so be it")) as up,
        running(up.url, data, storage(url, **settings)) as live,
    ):
        whole, newest, nobody = Chat(), Chat(), Chat()
        newest.newest = True
        await nobody.say(live, "hello", headers={})
        await live.stop_worker()
        for table in ("jobs", "schedules"):
            # As far as the worker had come.
            stores.on_server(url, f"DELETE FROM {table}")
        fact = {"content": "Ada likes green tea."}
        added = await live.memory("POST", "/users/ada/passages", json=fact)
        assert added.status_code in (200, 201), added.text
        for i in range(6):
            await whole.say(live, f"what green tea do I like, number {i}?", stream=i % 2 == 1)
            await newest.say(live, f"and which tea, number {i}?", headers=NAMED)
            await nobody.say(live, f"hello, number {i}", headers={})
        # An edit in a conversation that has a name marks it.
        newest.newest, newest.history = False, newest.history[:-2]
        await newest.say(live, "and which tea, edited?", headers=NAMED)
        waits = "SELECT count(*) FROM unindexed"
        assert await within(10, lambda: stores.on_server(url, waits)[0][0] == 0)


def rows_of(url):
    """Every row of every table, with ordinals for keys and nothing of times and random ids."""
    names = stores.on_server(
        url,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    )
    found = {
        name: [dict(row) for row in stores.on_server(url, f'SELECT * FROM "{name}"')]
        for (name,) in names
        if name not in ("usage", "alembic_version", "workers")
    }
    for row in found["jobs"]:
        # A number that is drawn for each attempt.
        del row["id"]
    keys = sorted({v for rows in found.values() for row in rows for v in row.values() if is_key(v)})
    places = {key: f"key {i}" for i, key in enumerate(keys)}

    def plain(name, value):
        if is_key(value):
            return places[value]
        if isinstance(value, float):
            return "time" if value > 1e9 else value
        if name == "recalled" and value:
            return len(json.loads(value))
        if name == "record":
            return re.sub(r"[0-9a-f]{16,}|[0-9.]+", "#", value)
        if isinstance(value, list):
            return len(value)
        return re.sub(r"[0-9a-f]{32}|[0-9]{16,}", "#", value) if isinstance(value, str) else value

    return {
        table: sorted(str({n: plain(n, v) for n, v in row.items()}) for row in rows)
        for table, rows in found.items()
    }


def is_key(value):
    return type(value) is int and value > KEY


async def test_the_statement_writes_the_rows_that_the_transaction_would(
    postgres_url, data, tmp_path, monkeypatch
):
    monkeypatch.setattr("memory.session.model_records.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("memory.stores.sql.turns.turn_writer.TOUCH_SECONDS", 0.0)
    at_once = count_written(monkeypatch)
    await converse(postgres_url, data)
    assert (len(at_once["open_turn"]), len(at_once["record"])) == (3, 15)
    for name in ("open_turn", "record"):
        monkeypatch.setattr(turn_statement, name, lambda *a, **b: None)
    other = stores.server_url("slow")
    await converse(other, tmp_path / "other")
    written, wanted = rows_of(postgres_url), rows_of(other)
    assert {n: len(rows) for n, rows in written.items()} == {n: len(r) for n, r in wanted.items()}
    for table, rows in wanted.items():
        for mine, other in zip(written[table], rows, strict=True):
            assert mine == other, table
    marks = "SELECT count(*) FROM conversations WHERE forked_from = name"
    assert stores.on_server(postgres_url, marks)[0][0] == 1


def count_written(monkeypatch):
    """What each way of the statement wrote."""
    fetch, found = PostgresConnection.fetch, {"open_turn": [], "record": []}

    async def counted(one, sql):
        if rows := await fetch(one, sql):
            found["record" if "head = $" in sql.text else "open_turn"] += rows
        return rows

    monkeypatch.setattr(PostgresConnection, "fetch", counted)
    return found


def said(url):
    """What was said, in order, with how often."""
    rows = stores.on_server(url, "SELECT content FROM messages ORDER BY id")
    return [row[0] for row in rows]


@pytest.mark.parametrize("stream", [False, True])
async def test_of_two_who_continue_a_conversation_both_answers_are_kept(
    postgres_url, data, tmp_path, stream
):
    """The second finds another version than it read, and its transaction decides."""
    chat = Chat()

    async def answer(seen, wire):
        words = seen.json["messages"][-1]["content"]
        if words == "slow":
            beside = Chat()
            beside.history = chat.history[:-1]
            await beside.say(two, "quick")
        return text(f"answer to {words}")

    async with (
        Model(answer) as up,
        running(up.url, data, storage(postgres_url)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url)) as two,
    ):
        for words in ("one", "two"):
            await chat.say(one, words)
        await chat.say(one, "slow", stream)
        chat.history[-1] = {"role": "assistant", "content": "answer to slow"}
        await chat.say(one, "three")
    wanted = ["one", "two", "quick", "slow", "three"]
    found = said(postgres_url)
    assert sorted(found) == sorted([*wanted, *(f"answer to {words}" for words in wanted)])
    versions = stores.on_server(postgres_url, "SELECT version, head FROM conversations")
    # The second continuation is a fork, or stays a branch of the first.
    assert len(versions) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_written_of_a_turn_whose_user_was_erased_meanwhile(
    postgres_url, data, tmp_path, stream
):
    async def answer(seen, wire):
        if "sentinel-5c20" in seen.json["messages"][-1]["content"]:
            # The request is durable by now.
            await asyncio.sleep(0.2)
            assert (await two.memory("DELETE", "/users/ada")).status_code == 200
        return text("so be it")

    async with (
        Model(answer) as up,
        running(up.url, data, storage(postgres_url)) as one,
        running(up.url, tmp_path / "other", storage(postgres_url)) as two,
    ):
        chat = Chat()
        for words in ("one", "two"):
            await chat.say(one, words)
        await chat.say(one, "sentinel-5c20", stream)
    for table in ("messages", "nodes", "conversations", "explains", "unindexed", "scopes"):
        assert stores.on_server(postgres_url, f"SELECT count(*) FROM {table}")[0][0] == 0, table


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("lost", ["its answer", "the statement", "for a while"])
async def test_a_statement_that_is_lost_is_written_once(
    postgres_url, data, monkeypatch, stream, lost
):
    """Its answer may be lost, itself, or itself until the transaction that follows has ended."""
    fetch, late = PostgresConnection.fetch, []

    async def lose(one, sql):
        if len(late) < 1 + stream:
            if lost == "its answer" and not (rows := await fetch(one, sql)):
                # Whoever indexes holds the lock, so the transaction writes it.
                return rows
            late.append(sql)
            one.raw.terminate()
            raise asyncpg.ConnectionDoesNotExistError
        return await fetch(one, sql)

    async with (
        Model(text("so be it")) as up,
        running(up.url, data, storage(postgres_url)) as live,
    ):
        await stop_jobs(live)
        chat = Chat()
        await chat.say(live, "one")
        await chat.say(live, "two")
        monkeypatch.setattr(PostgresConnection, "fetch", lose)
        await chat.say(live, "three", stream)
        assert len(late) == 1 + stream
        if lost == "for a while":
            for sql in late:
                found = await live.gateway.memory.db.read(
                    lambda conn, sql=sql: execute_sql(conn, sql.text, *sql.values), single=True
                )
                assert found == []
        await chat.say(live, "four")
    words = ("one", "two", "three", "four")
    assert said(postgres_url) == [w for each in words for w in (each, "so be it")]
    lines = stores.on_server(postgres_url, "SELECT count(*) FROM conversations")
    assert lines[0][0] == 1


async def test_what_postgres_cannot_store_costs_nothing_but_itself(postgres_url, data, monkeypatch):
    """Also in the one statement, which takes messages as JSON."""
    at_once = count_written(monkeypatch)
    odd = ["a\x00b", r"a\u0000b", "\\\x00", 'quote " \u2028 \U0001f375 \x7f']
    async with (
        Model(lambda seen, wire: text(seen.json["messages"][-1]["content"])) as up,
        running(up.url, data, storage(postgres_url)) as live,
    ):
        await stop_jobs(live)
        chat = Chat()
        for words in ("one", "two", *odd):
            await chat.say(live, words)
    kept = [words.replace("\x00", "\ufffd") for words in ("one", "two", *odd)]
    assert said(postgres_url) == [words for words in kept for _ in range(2)]
    # All but the first, which begins the chat.
    assert len(at_once["record"]) == 1 + len(odd)
