"""I.

Memory that fails, hangs, is asked twice or by two at once: the chat goes on, and what was written
is written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time

import asyncpg
import pytest

from memory.errors import StoreUnavailable
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.postgres.postgres import PostgresConnection
from memory.stores.sql.engine.sqlite.sqlite import SqliteConnection, SqliteThreads
from tests import stores
from tests.conftest import events, running, said
from tests.e2e.wire.reading import asked, both, case, check_valid
from tests.e2e.wire.rows import row
from tests.models import Model, call, calls

PATIENT = {"memory.read_deadline_ms": 150}
HOPE = call("archival_memory_insert", {"content": "Ada likes tea."}, "call_mem")
FIND = call("archival_memory_search", {"query": "tea"}, "call_find")


async def ready(live):
    await asyncio.wait_for(live.gateway.memory._ready.wait(), 10)
    # Its writes are not the turn's.
    await live.stop_worker()


async def passages(live):
    return await live.gateway.memory.db.read(
        lambda c: [r[0] for r in c.exec_driver_sql("SELECT content FROM passages ORDER BY id")]
    )


async def said_in(live):
    return await live.gateway.memory.db.read(
        lambda c: [
            tuple(r) for r in c.exec_driver_sql("SELECT role, content FROM messages ORDER BY id")
        ]
    )


@row(132)
@both
async def test_a_store_that_another_process_locks_holds_nobody_up(data, stream):
    async with Model("Fine.") as up, running(up.url, data, PATIENT) as live:
        await ready(live)
        await asked(live, stream, "warm up")
        async with stores.locked(data):
            begun = time.monotonic()
            response, answer = await asked(live, stream, "hi", user="ada")
            took = time.monotonic() - begun
        assert (answer["choices"][0]["content"], response.headers["x-memory-status"]) == (
            "Fine.",
            "degraded",
        )
        # 250 ms of its own, on a loaded machine; a lock's own patience is 5 s.
        assert took < 2, took
        # What was given up is not written later.
        assert len(await said_in(live)) == 2


@row(132)
@both
async def test_a_call_that_the_store_cannot_take_becomes_an_error_for_the_model(
    data, stream, monkeypatch
):
    async def lock(seen, wire):
        await stack.enter_async_context(stores.locked(data))
        await (up._streamed if stream else up._plain)(seen, wire, [calls(HOPE, FIND)])

    async with Model(lock, "Sorry.") as up, running(up.url, data, PATIENT) as live:
        await ready(live)
        async with contextlib.AsyncExitStack() as stack:
            _response, answer = await asked(live, stream, "hi", user="ada")
            assert answer["choices"][0]["content"] == "Sorry."
            results = [m["content"] for m in up.bodies[1]["messages"] if m["role"] == "tool"]
            assert results[0].startswith("Error: the memory is unavailable")
            check_valid(up.bodies[1]["messages"])
        assert await passages(live) == []


@row(132)
@both
@pytest.mark.parametrize("how", ["raises", "hangs", "tables gone"])
async def test_a_store_that_cannot_be_read_is_passed_by_within_a_quarter_of_a_second(
    data, stream, how, monkeypatch
):
    async def hangs(self, work, single):
        await asyncio.sleep(3)
        raise StoreUnavailable("late")

    def fails(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    async def is_broken(*_, **__):
        raise asyncpg.DataCorruptedError("invalid page in block 7")

    async with Model("Fine.") as up, running(up.url, data, PATIENT) as live:
        await ready(live)
        if how == "tables gone":
            await live.gateway.memory.db.write(
                lambda c: [
                    c.exec_driver_sql(f"DROP TABLE {t}") for t in ("messages", "blocks", "scopes")
                ]
            )
        elif how == "hangs":
            monkeypatch.setattr(Database, "_read_once", hangs)
            # As once it was slow.
            monkeypatch.setattr(SqliteThreads, "at_once", lambda *_, **__: None)
        else:
            monkeypatch.setattr(SqliteConnection, "run", fails)
            monkeypatch.setattr(PostgresConnection, "read", is_broken)
            monkeypatch.setattr(PostgresConnection, "within", is_broken)
        took = []
        for i in range(5):
            begun = time.monotonic()
            response, answer = await asked(live, stream, f"hi {i}", user="ada")
            took.append(time.monotonic() - begun)
            assert (answer["choices"][0]["content"], response.headers["x-memory-status"]) == (
                "Fine.",
                "degraded",
            )
            assert set(up.bodies[-1]) <= {"model", "messages", "user", "stream", "stream_options"}
        assert min(took) < 0.25, took
        assert sorted(took)[2] < 1, took


@row(133)
@both
async def test_a_retry_of_the_sdks_writes_once(data, stream):
    """openai-python repeats the very same body with x-stainless-retry-count; other clients send an
    Idempotency-Key.
    """
    failing = (
        503,
        {"error": {"message": "later", "type": "server_error", "param": None, "code": None}},
    )
    first, again = {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}
    keyed = {"idempotency-key": "k-1"}
    runs = {
        "failed between": ([calls(HOPE), failing, "Done."], first, again),
        "counted after a success": ([calls(HOPE), "Done.", calls(HOPE), "Done."], first, again),
        "the same key": ([calls(HOPE), "Done.", calls(HOPE), "Done."], keyed, keyed),
        "failed, no header at all": ([calls(HOPE), failing, "Done."], {}, {}),
    }
    async with Model("") as up, running(up.url, data, {"routing.retries": 0}) as live:
        for what, (script, one, two) in runs.items():
            with case(up, what, *script) as user:
                await live.chat("hi", one, user=user, stream=stream)
                _, answer = await asked(live, stream, "hi", two, user=user)
                assert answer["choices"][0]["content"] == "Done."
                assert await passages(live) == ["Ada likes tea."]
                await live.gateway.memory.db.write(
                    lambda c: c.exec_driver_sql("DELETE FROM passages")
                )
        other = {
            **HOPE,
            "function": {**HOPE["function"], "arguments": '{"content": "Ada likes rain."}'},
        }
        for what, ask in (
            ("another body under the same key", {"temperature": 0.5}),
            ("a new request after a success", {}),
        ):
            with case(up, what, calls(HOPE), "Done.", calls(other), "Done.") as user:
                await live.chat("hi", keyed if ask else {}, user=user, stream=stream)
                await live.chat("hi", keyed if ask else {}, user=user, stream=stream, **ask)
                assert await passages(live) == ["Ada likes tea.", "Ada likes rain."]
                await live.gateway.memory.db.write(
                    lambda c: c.exec_driver_sql("DELETE FROM passages")
                )


@row(133)
async def test_a_retry_while_the_first_is_on_its_way_waits_and_writes_once(data):
    go = asyncio.Event()

    async def slow(seen, wire):
        await go.wait()
        await up._plain(seen, wire, [calls(HOPE)])

    async with Model(slow, "Done.", "Done.") as up, running(up.url, data) as live:
        await ready(live)
        both_sent = [
            asyncio.create_task(live.chat("hi", {"idempotency-key": "k"}, user="ada"))
            for _ in range(3)
        ]
        while not up.requests:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert len(up.requests) == 1
        go.set()
        answers = [
            r.json()["choices"][0]["message"]["content"] for r in await asyncio.gather(*both_sent)
        ]
        assert answers == ["Done."] * 3
        assert await passages(live) == ["Ada likes tea."]


@row(134)
@both
@pytest.mark.parametrize("tool", ["core_memory_append", "memory_rethink", "core_memory_replace"])
async def test_of_two_turns_at_once_no_edit_is_lost_in_silence(data, stream, tool):
    """Both turns read the block, then both edit it: either both edits are there, or the model of
    one was told to look again.
    """
    met = asyncio.Barrier(2)

    def of(seen):
        return "tea" if "tea" in str(seen.json["messages"][-1]["content"]) else "rain"

    async def model(seen, wire):
        if any(m["role"] == "tool" for m in seen.json["messages"]):
            told[of_user(seen)] = seen.json["messages"][-1]["content"]
            await (up._streamed if stream else up._plain)(
                seen,
                wire,
                [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
            )
            return
        await met.wait()
        word = of(seen)
        arguments = {
            "core_memory_append": {"content": word},
            "memory_rethink": {"new_memory": word},
            "core_memory_replace": {"old_content": "drink", "new_content": f"drink {word}"},
        }[tool]
        await (up._streamed if stream else up._plain)(
            seen, wire, [calls(call(tool, {"label": "human", **arguments}))]
        )

    def of_user(seen):
        return next(
            w
            for w in ("tea", "rain")
            if any(m["role"] == "user" and w in m["content"] for m in seen.json["messages"])
        )

    told = {}
    async with (
        Model(model) as up,
        running(up.url, data, {"memory.blocks": [{"label": "human", "value": "drink"}]}) as live,
    ):
        await ready(live)
        await asyncio.gather(
            *(asked(live, stream, f"I like {w}", user="ada") for w in ("tea", "rain"))
        )
        found = (
            await live.memory(
                "GET",
                "/users/ada/blocks/human",
                headers={"authorization": f"Bearer {live.gateway.keys._token}"},
            )
        ).json()["value"]
        for word, result in told.items():
            assert (word in found) == result.startswith("Saved"), (found, told)
            assert word in found or ("changed since" in result and found in result), (found, told)
        assert sum(r.startswith("Saved") for r in told.values()) == (
            1 if tool == "memory_rethink" else 2
        )


@row(143)
async def test_a_stream_is_kept_alive_while_tools_run_and_between_rounds(data, monkeypatch):
    original = Database.write

    async def slow_write(self, work, **how):
        await asyncio.sleep(0.6)
        return await original(self, work, **how)

    async def slow_round(seen, wire):
        await asyncio.sleep(0.6)
        await up._streamed(
            seen,
            wire,
            [{"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
        )

    quick = {"server.keepalive_seconds": 0.15, "server.commit_seconds": 0.15}
    # With None nothing was shown yet when the tools run.
    for content in ("Saving.", None):
        async with (
            Model(calls(HOPE, content=content), slow_round) as up,
            running(up.url, data, quick) as live,
        ):
            await ready(live)
            with monkeypatch.context() as patch:
                patch.setattr(Database, "write", slow_write)
                text = (await live.chat("hi", stream=True, user="ada")).text
            parts = text.split("\n\n")
            quiet = [i for i, p in enumerate(parts) if p == ": keep-alive"]
            done = next(i for i, p in enumerate(parts) if '"Done."' in p or "Done." in p)
            assert sum(i < done for i in quiet) >= 4
            assert all(p.startswith("data: ") or p in (": keep-alive", "") for p in parts)
            assert said(events(text)).endswith("Done.")
