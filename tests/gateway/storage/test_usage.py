"""Usage as rows: sums by group, pages that lose and double nothing, erased names, age."""

from __future__ import annotations

import time

import pytest

from gateway.storage import usage
from gateway.storage.usage import UsageFilter
from memory.jobs import maintenance
from memory.jobs.worker import Worker
from memory.retrieval.retriever import Retriever

DAY = 86400.0
# 2026-03-01T00:00:00Z.
MARCH = 1_772_323_200.0


def row(**over):
    return {
        "request_id": "r",
        "created_at": MARCH,
        "tenant": "acme",
        "user": "ada",
        "key": "app",
        "model": "m",
        "target": "p/m",
        "path": "/v1/chat/completions",
        "mode": "full",
        "attempts": 1,
        "rounds": 1,
        "input": 10,
        "cached_input": 4,
        "cache_write": 2,
        "output": 3,
        "reasoning": 1,
        "hidden_input": 5,
        "hidden_output": 1,
        "estimated": False,
        "cost": 0.5,
        "latency_ms": 20.0,
        "first_token_ms": 8.0,
        "status": 200,
        "code": None,
        **over,
    }


async def fill(db, *rows):
    await db.write(lambda conn: usage.insert(conn, rows))


async def groups(db, *by, which=None, after=None, limit=100):
    return await db.read(
        lambda conn: usage.sum_groups(conn, by, which or UsageFilter(), after, limit)
    )


async def test_a_group_sums_what_its_requests_used(db):
    await fill(
        db,
        row(),
        row(cost=None, status=500, estimated=True, first_token_ms=None, latency_ms=40.0),
        row(cost=0.25),
    )
    [found] = await groups(db, "tenant")
    assert found.members == {"tenant": "acme"}
    assert found.sums == {
        "requests": 3,
        "errors": 1,
        "input_tokens": 30,
        "cached_input_tokens": 12,
        "cache_write_tokens": 6,
        "output_tokens": 9,
        "reasoning_tokens": 3,
        "hidden_input_tokens": 15,
        "hidden_output_tokens": 3,
        "cost_usd": 0.75,
        "unpriced_requests": 1,
        "estimated_requests": 1,
        "latency_ms": pytest.approx(80 / 3),
        "first_token_ms": 8.0,
    }


async def test_unknown_costs_are_no_zero(db):
    await fill(db, row(cost=None), row(cost=None), row(cost=0.0, key="free"))
    assert [(g.sums["cost_usd"], g.sums["unpriced_requests"]) for g in await groups(db, "key")] == [
        (None, 2),
        (0.0, 0),
    ]


@pytest.mark.parametrize(
    ("at", "day"),
    [
        (MARCH, "2026-03-01"),
        (MARCH - 0.001, "2026-02-28"),
        (MARCH + DAY - 0.001, "2026-03-01"),
        (MARCH + DAY / 2 + 1, "2026-03-01"),
        (0.0, "1970-01-01"),
    ],
)
async def test_a_day_is_a_utc_date(db, at, day):
    await fill(db, row(created_at=at))
    assert [g.members for g in await groups(db, "day")] == [{"day": day}]


async def test_groups_stand_in_the_order_asked_for_newest_day_first(db):
    await fill(
        db,
        *(
            row(key=k, user=u, created_at=MARCH + d * DAY)
            for k in ("b", "a")
            for u in ("z", None)
            for d in (0, 1)
        ),
    )
    assert [tuple(g.members.values()) for g in await groups(db, "key", "day", "user")] == [
        (k, day, u) for k in ("a", "b") for day in ("2026-03-02", "2026-03-01") for u in (None, "z")
    ]


@pytest.mark.parametrize(
    "by",
    [
        ("day",),
        ("user",),
        ("user", "day"),
        ("tenant", "key", "user", "model", "target", "agent", "day"),
    ],
)
async def test_pages_of_groups_lose_and_double_nothing(db, by):
    await fill(
        db,
        *(
            row(user=u, created_at=MARCH + d * DAY, model=m)
            for u in (None, "a", "b")
            for d in range(3)
            for m in ("x", "y")
        ),
    )
    whole = await groups(db, *by)
    walked, after = [], None
    while page := await groups(db, *by, after=after, limit=2):
        walked += page
        after = page[-1].place
    assert walked == whole
    assert sum(g.sums["requests"] for g in whole) == 18


async def test_pages_of_requests_lose_and_double_nothing_newest_first(db):
    await fill(db, *(row(request_id=f"r{i}", created_at=MARCH + i // 2) for i in range(7)))
    walked, before = [], None
    while page := await db.read(
        lambda conn, b=before: usage.list_records(conn, UsageFilter(), b, 2)
    ):
        walked += [r["request_id"] for r in page]
        before = page[-1]["created_at"], page[-1]["id"]
    assert walked == [f"r{i}" for i in reversed(range(7))]


@pytest.mark.parametrize(
    ("which", "count"),
    [
        ({}, 3),
        ({"tenant": "acme"}, 2),
        ({"tenant": "nobody"}, 0),
        ({"user": "ada"}, 1),
        ({"key": "app", "model": "m"}, 2),
        ({"model": "n"}, 1),
        ({"since": MARCH}, 3),
        ({"since": MARCH + 0.5}, 2),
        ({"until": MARCH}, 1),
        ({"since": MARCH + 1, "until": MARCH + 1}, 1),
    ],
)
async def test_filters_hold_for_sums_and_for_single_requests(db, which, count):
    await fill(
        db,
        row(),
        row(user=None, created_at=MARCH + 1),
        row(tenant="beta", user="bob", key="other", model="n", created_at=MARCH + 2),
    )
    found = await groups(db, "tenant", which=UsageFilter(**which))
    assert sum(g.sums["requests"] for g in found) == count
    assert (
        len(await db.read(lambda conn: usage.list_records(conn, UsageFilter(**which), None, 10)))
        == count
    )


async def test_what_each_key_spent_since_a_moment(db):
    await fill(
        db,
        row(),
        row(cost=0.25),
        row(cost=None),
        row(key="b", cost=1.0),
        row(key="old", created_at=MARCH - 1),
        row(key="unknown", cost=None),
    )
    found = {
        key: await db.read(lambda conn, k=key: usage.spent_since(conn, k, MARCH))
        for key in ("app", "b", "old", "unknown")
    }
    assert found == {"app": 0.75, "b": 1.0, "old": 0.0, "unknown": 0.0}


async def test_a_forgotten_user_leaves_the_bill(db):
    await fill(db, row(), row(user="bob"), row(tenant="beta"), row())
    assert await db.write(lambda conn: usage.forget(conn, "acme", "ada")) == 2
    assert [
        (g.members, g.sums["requests"], g.sums["cost_usd"])
        for g in await groups(db, "tenant", "user")
    ] == [
        ({"tenant": "acme", "user": None}, 2, 1.0),
        ({"tenant": "acme", "user": "bob"}, 1, 0.5),
        ({"tenant": "beta", "user": "ada"}, 1, 0.5),
    ]


async def test_what_is_older_than_400_days_leaves_whoever_it_was(db, monkeypatch):
    monkeypatch.setattr(usage, "BATCH", 2)
    old = time.time() - 401 * DAY
    await fill(
        db,
        *(
            row(request_id=f"old{i}", created_at=old + i, tenant=t)
            for i in range(5)
            for t in ("acme", "own-1")
        ),
        row(request_id="kept", created_at=time.time() - 399 * DAY),
    )
    worker = Worker(db)
    db.application_tables.append(usage.UsageTables(lambda *_: None))
    maintenance.register(worker, db, maintenance.RetentionPolicy(7, 30), Retriever(db))
    await db.write(lambda conn: maintenance.enqueue(conn, maintenance.QueuedJob("expire")))
    await worker.drain()
    assert [
        r["request_id"]
        for r in await db.read(lambda conn: usage.list_records(conn, UsageFilter(), None, 100))
    ] == ["kept"]
    assert await db.write(lambda conn: usage.older(conn, 0.0)) == 0


async def test_an_empty_table_has_nothing_too_old(db):
    assert await db.write(lambda conn: usage.older(conn, time.time())) == 0
