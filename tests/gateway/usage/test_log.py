"""Usage records: written behind the request's back, erased with their user, told by the management
API.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sqlite3
import threading
import time

import pytest
from sqlalchemy import text

from gateway.storage import usage as rows
from gateway.storage.usage import UsageFilter
from gateway.usage import log as usage
from gateway.usage.log import UsageLog, UsageRecord
from memory.errors import StoreUnavailable
from memory.stores.sql.engine.vacuum import vacuum
from tests.gateway.management.managing import as_key, managed
from tests.sockets import within

# 2026-03-01T00:00:00Z.
MARCH = 1_772_323_200.0
ROOT = as_key("sk-root")


async def opened():
    """What waits for a store that is open."""


def record(ident="r", **over):
    return UsageRecord(
        **{
            "request_id": ident,
            "created_at": time.time(),
            "tenant": "acme",
            "user": "ada",
            "key": "app",
            "model": "m",
            "target": "openai/m",
            "path": "/v1/chat/completions",
            "mode": "full",
            "latency_ms": 10.0,
            "status": 200,
            **over,
        }
    )


@pytest.fixture
def quick(monkeypatch):
    """The writer's waits, cut short."""
    for name, seconds in {"INTERVAL": 0.01, "BACK_OFF": 0.02, "FLUSH_SECONDS": 0.2}.items():
        monkeypatch.setattr(usage, name, seconds)


async def stored(db):
    found = await db.read(lambda conn: rows.list_records(conn, UsageFilter(), None, 10_000))
    return [r["request_id"] for r in sorted(found, key=lambda r: r["id"])]


async def soon(db, count):
    async with asyncio.timeout(5):
        while len(found := await stored(db)) < count:
            await asyncio.sleep(0.01)
    return found


@contextlib.asynccontextmanager
async def stalled(db):
    """The database's one writer, kept busy."""
    begun, go = threading.Event(), threading.Event()
    holding = asyncio.create_task(db.write(lambda conn: begun.set() or go.wait(20)))
    await asyncio.to_thread(begun.wait, 5)
    try:
        yield
    finally:
        go.set()
        await holding


# --- the writer ---


async def test_records_are_written_by_themselves_in_order(db, quick):
    log = UsageLog(db, opened)
    log.start()
    # More than two batches.
    for i in range(1100):
        log.add(record(f"r{i}"))
    assert await soon(db, 1100) == [f"r{i}" for i in range(1100)]
    log.add(record("late"))
    assert (await soon(db, 1101))[-1] == "late"
    await log.stop()


async def test_every_column_arrives(db):
    log = UsageLog(db, opened)
    sent = record(
        attempts=2,
        rounds=3,
        input=100,
        cached_input=40,
        cache_write=5,
        output=20,
        reasoning=7,
        hidden_input=50,
        hidden_output=9,
        estimated=True,
        cost=0.25,
        first_token_ms=3.5,
        status=502,
        code="upstream_unreachable",
    )
    log.add(sent)
    await log.flush()
    [found] = await db.read(lambda conn: rows.list_records(conn, UsageFilter(), None, 10))
    assert {k: v for k, v in found.items() if k != "id"} == {
        name: getattr(sent, name) for name in usage.COLUMNS
    }


async def test_a_stalled_store_holds_up_no_request_and_loses_nothing(db, quick):
    log = UsageLog(db, opened)
    log.start()
    async with stalled(db):
        begun = time.thread_time()
        # In one turn of the loop, so that none of them can wait.
        for i in range(2000):
            log.add(record(f"r{i}"))
        assert time.thread_time() - begun < 1
        with pytest.raises(StoreUnavailable, match=r"not written within 0\.2 s"):
            await log.flush()
    assert await soon(db, 2000) == [f"r{i}" for i in range(2000)]
    await log.stop()
    assert log.dropped_records == 0


async def test_a_full_queue_keeps_the_oldest_counts_the_rest_and_warns_once(db, caplog):
    log = UsageLog(db, opened, capacity=3)
    with caplog.at_level(logging.WARNING):
        for i in range(10):
            log.add(record(f"r{i}"))
    assert log.dropped_records == 7
    assert [r.getMessage() for r in caplog.records] == [
        "usage records are dropped, 1 so far: 3 of them are already waiting for the store"
    ]
    await log.flush()
    log.add(record("again"))
    await log.flush()
    assert await stored(db) == ["r0", "r1", "r2", "again"]


async def test_a_store_that_fails_keeps_them_queued(db, quick, caplog):
    log = UsageLog(db, opened)
    await db.write(lambda conn: conn.execute(text('ALTER TABLE "usage" RENAME TO away')) and None)
    log.start()
    with caplog.at_level(logging.WARNING):
        log.add(record("a"))
        with pytest.raises(StoreUnavailable):
            await log.flush()
        assert await within(10, lambda: caplog.records)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
        "1 usage records wait for the store"
    ]
    await db.write(lambda conn: conn.execute(text('ALTER TABLE away RENAME TO "usage"')) and None)
    log.add(record("b"))
    assert await soon(db, 2) == ["a", "b"]
    await log.stop()


async def test_a_stop_writes_what_is_queued(db):
    log = UsageLog(db, opened)
    log.start()
    log.add(record("a"))
    await log.stop()
    assert await stored(db) == ["a"]
    await log.stop()


async def test_a_stop_waits_for_no_stalled_store_and_says_what_is_lost(db, quick, caplog):
    log = UsageLog(db, opened)
    log.start()
    async with stalled(db):
        log.add(record("a"))
        begun = time.perf_counter()
        with caplog.at_level(logging.WARNING):
            await log.stop()
        # The store stalls for 20 s.
        assert time.perf_counter() - begun < 15
    assert "1 usage records are lost" in caplog.text
    assert await stored(db) == []


async def test_whoever_stops_waiting_for_a_flush_doubles_nothing(db):
    log = UsageLog(db, opened)
    async with stalled(db):
        log.add(record("a"))
        waiting = [asyncio.create_task(log.flush()) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        log.add(record("b"))
    await asyncio.gather(*waiting[1:])
    assert await stored(db) == ["a", "b"]


async def test_records_that_keep_coming_do_not_keep_a_flush(db):
    log = UsageLog(db, opened)
    log.add(record("first"))
    ended = asyncio.Event()

    async def more():
        for i in itertools.count():
            if ended.is_set():
                return
            # Never empty, never full: a machine that adds faster than it writes would meet the
            # queue's limit, which is another law.
            if len(log._queue) < 1000:
                log.add(record(f"r{i}"))
            await asyncio.sleep(0)

    coming = asyncio.create_task(more())
    for i in range(3):
        log.add(record(f"mine {i}"))
        async with asyncio.timeout(5):
            await log.flush()
        assert f"mine {i}" in await stored(db)
    ended.set()
    await coming
    await log.flush()


async def test_texts_and_numbers_that_no_store_takes_are_made_to_fit(db):
    log = UsageLog(db, opened)
    log.add(record("a", model="\ud800" + "m" * 5000, input=10**30))
    await log.flush()
    [found] = await db.read(lambda conn: rows.list_records(conn, UsageFilter(), None, 10))
    assert (found["model"], found["input"]) == ("?" + "m" * 1023, 2**31 - 1)


async def test_a_record_that_is_none_is_dropped_and_holds_up_no_other(db, caplog):
    log = UsageLog(db, opened)
    for beside in (record("before"), record("a", latency_ms=None), record("behind")):
        log.add(beside)
    with caplog.at_level(logging.WARNING):
        await log.flush()
    assert (
        "1 so far: they cannot be stored: a usage record does not fit its table: IntegrityError"
        in caplog.text
    )
    log.add(record("b"))
    await log.flush()
    assert (log.dropped_records, await stored(db)) == (1, ["before", "behind", "b"])


async def test_an_erased_name_is_on_no_record_of_a_request_that_began_before(db):
    log = UsageLog(db, opened)
    before = time.time() - 1
    log.add(record("queued", created_at=before))
    log.forget("acme", "ada")
    log.add(record("was running", created_at=before))
    log.add(record("another", created_at=before, user="bob"))
    log.add(record("another tenant's", created_at=before, tenant="beta"))
    log.add(record("new", created_at=time.time() + 1))
    await log.flush()
    found = await db.read(lambda conn: rows.list_records(conn, UsageFilter(), None, 10))
    assert {r["request_id"]: r["user"] for r in found} == {
        "queued": None,
        "was running": None,
        "another": "bob",
        "another tenant's": "ada",
        "new": "ada",
    }


async def test_erasures_are_remembered_for_as_long_as_a_request_can_last(db, monkeypatch):
    log = UsageLog(db, opened)
    now = time.time()
    for i, at in enumerate((now, now + 1, now + usage.ERASED_SECONDS + 0.5)):
        monkeypatch.setattr(usage.time, "time", lambda at=at: at)
        log.forget("acme", f"u{i}")
    assert [user for _, user in log._erasure_times] == ["u1", "u2"]


# --- the report ---


async def told(live, query="", **options):
    r = await live.memory("GET", f"/usage{query}", **options)
    assert r.status_code == 200, r.text
    return r.json()["data"]


async def test_what_ended_just_now_is_shown_by_day(live):
    live.gateway.usage.add(
        record(
            created_at=MARCH,
            rounds=2,
            input=100,
            cached_input=40,
            cache_write=10,
            output=20,
            reasoning=5,
            hidden_input=50,
            hidden_output=4,
            cost=0.5,
            first_token_ms=4.0,
        )
    )
    live.gateway.usage.add(
        record(created_at=MARCH + 5, status=502, estimated=True, latency_ms=30.0)
    )
    r = await live.memory("GET", "/usage")
    assert r.json() == {
        "object": "list",
        "next_cursor": None,
        "data": [
            {
                "object": "usage",
                "day": "2026-03-01",
                "requests": 2,
                "errors": 1,
                "input_tokens": 100,
                "cached_input_tokens": 40,
                "cache_write_tokens": 10,
                "output_tokens": 20,
                "reasoning_tokens": 5,
                "hidden_input_tokens": 50,
                "hidden_output_tokens": 4,
                "cost_usd": 0.5,
                "unpriced_requests": 1,
                "estimated_requests": 1,
                "latency_ms": 20.0,
                "first_token_ms": 4.0,
            }
        ],
    }


async def test_groups_are_walked_by_cursor(live):
    for user in ("b", None, "a"):
        for day in range(3):
            live.gateway.usage.add(record(user=user, created_at=MARCH + day * 86400))
    found, cursor = [], ""
    while cursor is not None:
        r = (
            await live.memory(
                "GET", f"/usage?group_by=day,user&limit=2{cursor and '&cursor=' + cursor}"
            )
        ).json()
        found += [(g["day"], g["user"]) for g in r["data"]]
        cursor = r["next_cursor"]
    assert found == [(f"2026-03-0{d}", u) for d in (3, 2, 1) for u in (None, "a", "b")]


async def test_single_requests_are_told_newest_first(live):
    for i in range(3):
        live.gateway.usage.add(
            record(
                f"r{i}",
                created_at=MARCH + i,
                cost=0.5,
                code="x" if i else None,
                status=400 if i else 200,
            )
        )
    first = (await live.memory("GET", "/usage?group_by=request&limit=2")).json()
    assert [r["request_id"] for r in first["data"]] == ["r2", "r1"]
    [last] = (
        await live.memory("GET", f"/usage?group_by=request&limit=2&cursor={first['next_cursor']}")
    ).json()["data"]
    assert last == {
        "object": "usage.request",
        "request_id": "r0",
        "created_at": "2026-03-01T00:00:00.000Z",
        "tenant": "acme",
        "user": "ada",
        "key": "app",
        "model": "m",
        "target": "openai/m",
        "path": "/v1/chat/completions",
        "mode": "full",
        "attempts": 0,
        "rounds": 0,
        "input_tokens": 0,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 0,
        "reasoning_tokens": 0,
        "hidden_input_tokens": 0,
        "hidden_output_tokens": 0,
        "estimated": False,
        "cost_usd": 0.5,
        "latency_ms": 10.0,
        "first_token_ms": None,
        "status": 200,
        "code": None,
        "agent": None,
        "parent": None,
    }


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("&since=2026-03-01&until=2026-03-01", 2),
        ("&until=2026-02-28", 0),
        ("&since=2026-03-02", 1),
        ("&since=2026-03-01T12:00:00%2B00:00", 2),
        ("&user=bob", 1),
        ("&key=k2", 1),
        ("&model=m2", 1),
        ("&model=m&user=ada", 1),
        ("&tenant=acme", 3),
    ],
)
async def test_filters_narrow_what_is_told(live, query, count):
    live.gateway.usage.add(record(created_at=MARCH))
    live.gateway.usage.add(record(created_at=MARCH + 86399.9, user="bob", key="k2"))
    live.gateway.usage.add(record(created_at=MARCH + 86400, user=None, model="m2"))
    assert len(await told(live, f"?group_by=request{query}")) == count


@pytest.mark.parametrize(
    ("key", "query", "tenants"),
    [
        ({}, "", ["acme"]),
        (as_key("sk-other"), "", ["beta"]),
        (ROOT, "", ["acme", "beta"]),
        (ROOT, "&tenant=beta", ["beta"]),
        (ROOT, "&tenant=*", ["acme", "beta"]),
        (as_key("sk-ada"), "&user=ada", ["acme"]),
    ],
)
async def test_a_key_sees_its_own_tenant_and_an_admin_all(live, key, query, tenants):
    live.gateway.usage.add(record())
    live.gateway.usage.add(record(tenant="beta", key="other"))
    assert [g["tenant"] for g in await told(live, f"?group_by=tenant{query}", **key)] == tenants


async def test_a_key_that_is_not_trusted_sees_its_own_user_alone(live):
    for user in ("ada", "bob", None):
        live.gateway.usage.add(record(user=user))
    assert [g["user"] for g in await told(live, "?group_by=user&user=ada", **as_key("sk-ada"))] == [
        "ada"
    ]


@pytest.mark.parametrize(
    ("key", "query", "status", "says"),
    [
        ("sk-ada", "", 403, "?user="),
        ("sk-ada", "?user=bob", 403, "'bob'"),
        ("sk-ada", "?user=ada&tenant=beta", 403, "admin"),
        ("sk-other", "?tenant=acme", 403, "admin"),
        ("sk-root", "?group_by=colour", 400, "'colour'"),
        ("sk-root", "?group_by=colour", 400, "tenant, key, user, model, target, agent, day"),
        ("sk-root", "?group_by=", 400, "''"),
        ("sk-root", "?group_by=day,request", 400, "'day,request'"),
        ("sk-root", "?since=soon", 400, "'soon'"),
        ("sk-root", "?until=2026-13-01", 400, "'2026-13-01'"),
        ("sk-root", "?limit=0", 400, "'0'"),
        ("sk-root", "?user=%20", 400, "`user`"),
        ("sk-root", "?cursor=zzz", 400, "'zzz'"),
        ("sk-root", "?cursor=WyJ4Il0", 400, "next_cursor"),
        ("sk-root", "?cursor=Wy0xZTE4XQ", 400, "next_cursor"),
        ("sk-root", "?group_by=request&cursor=WyJ4Il0", 400, "next_cursor"),
        ("sk-nobody", "", 401, "key"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_told_why(live, key, query, status, says):
    r = await live.memory("GET", f"/usage{query}", **as_key(key))
    assert (r.status_code, says in r.json()["error"]["message"]) == (status, True), r.text


async def test_a_store_that_stalls_is_told_as_unavailable(live, quick):
    assert await told(live) == []
    async with stalled(live.gateway.memory.db):
        live.gateway.usage.add(record())
        r = await live.memory("GET", "/usage")
    assert r.status_code == 503
    assert r.headers["retry-after"] == "1"


async def test_what_is_queued_when_the_gateway_ends_is_kept(data):
    async with managed(data) as live:
        await live.gateway.memory.wait_until_ready()
        live.gateway.usage.add(record("last"))
    with contextlib.closing(sqlite3.connect(data / "mnemogate.db")) as conn:
        assert conn.execute('SELECT request_id FROM "usage"').fetchall() == [("last",)]


async def test_after_an_erasure_and_a_vacuum_the_name_is_nowhere_and_the_bill_stays(data):
    async with managed(data) as live:
        log, began = live.gateway.usage, time.time()
        log.add(record("stored", user="sentinelada", cost=0.5))
        assert len(await told(live, "?user=sentinelada")) == 1
        log.add(record("queued", user="sentinelada", cost=0.25))
        r = await live.memory("DELETE", "/users/sentinelada")
        assert set(r.json()["erased"]) == {
            "blocks",
            "versions",
            "tool_calls",
            "tool_results",
            "skills",
            "files",
            "file_passages",
            "passages",
            "messages",
            "conversations",
            "summaries",
            "vectors",
            "explain",
            "jobs",
            "responses",
        }
        log.add(record("was running", user="sentinelada", created_at=began, cost=0.125))
        assert [
            (g["user"], g["requests"], g["cost_usd"]) for g in await told(live, "?group_by=user")
        ] == [(None, 3, 0.875)]
        await vacuum(live.gateway.memory.db.url)
    left = {f.name: b"sentinelada" in f.read_bytes() for f in data.rglob("*") if f.is_file()}
    assert left["mnemogate.db"] is False
    assert not any(left.values())
