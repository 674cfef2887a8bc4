"""The durable queue: nothing lost, nothing run by two at once, nothing tried for ever."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from sqlalchemy import delete, insert, select, update

from memory.errors import Conflict, Postponed
from memory.ids import key_at
from memory.jobs import maintenance
from memory.jobs.worker import Worker
from memory.retrieval.retriever import Retriever
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import jobs as queue
from memory.stores.sql.rows import scopes as owners
from memory.stores.sql.rows.jobs import QueuedJob
from tests import stores


async def add(db, *jobs):
    await db.write(lambda conn: [queue.enqueue(conn, j) for j in jobs])


async def jobs(db):
    return await db.read(
        lambda conn: [dict(r._mapping) for r in conn.execute(select(t.jobs).order_by(t.jobs.c.id))]
    )


async def set_all(db, **values):
    await db.write(lambda conn: conn.execute(update(t.jobs).values(**values)) and None)


async def claim(db, lease=60.0):
    return await db.write(lambda conn: queue.claim(conn, queue.JobFilter(("k",)), lease))


async def test_a_job_commits_with_the_write_that_caused_it(db):
    def work(conn):
        queue.enqueue(conn, QueuedJob("k"))
        raise ValueError("rolled back")

    with pytest.raises(ValueError, match="rolled back"):
        await db.write(work)
    assert await jobs(db) == []


async def test_a_worker_runs_what_it_has_a_handler_for(db):
    seen = []
    worker = Worker(db, poll=0.01)

    async def handle(job):
        seen.append((job.kind, job.payload, job.scope_id))

    worker.register("k", handle)
    await add(
        db,
        QueuedJob("k", {"n": 1}, scope_id=7),
        QueuedJob("other"),
        QueuedJob("k", {"n": 2}, delay=1000),
    )
    worker.start()
    worker.start()
    async with asyncio.timeout(5):
        while len(await jobs(db)) > 2:
            await asyncio.sleep(0.01)
    await worker.stop()
    await worker.stop()
    assert seen == [("k", {"n": 1}, 7)]
    assert [j["kind"] for j in await jobs(db)] == ["other", "k"]


async def test_a_dedupe_key_holds_while_the_job_waits(db):
    await add(db, QueuedJob("k", dedupe="one"), QueuedJob("k", dedupe="one"))
    assert len(await jobs(db)) == 1
    await claim(db)
    await add(db, QueuedJob("k", dedupe="one"))
    assert [j["state"] for j in await jobs(db)] == ["running", "ready"]


async def test_a_lease_that_ended_is_taken_over_and_the_first_worker_can_settle_nothing(db):
    await add(db, QueuedJob("k"))
    first = await claim(db, lease=-1)
    assert first is not None
    second = await claim(db)
    assert (second.id, second.attempts) == (first.id, 2)
    assert await claim(db) is None
    await db.write(lambda conn: queue.complete(conn, first))
    await db.write(lambda conn: queue.fail(conn, first, "late"))
    assert [j["state"] for j in await jobs(db)] == ["running"]
    await db.write(lambda conn: queue.complete(conn, second))
    assert await jobs(db) == []


async def test_to_claim_a_job_costs_the_same_however_many_wait(db):
    """It is done on the event loop's own thread."""
    ticks, costs = [], []
    for many in (20, 2000):
        await add(db, *(QueuedJob("k", {"text": "words " * 50}) for _ in range(many)))
        db._connections._own_connection[1].raw.set_progress_handler(
            lambda: ticks.append(1) and 0, 50
        )
        for _ in range(3):
            ticks.clear()
            assert await db.write(
                lambda conn: queue.claim(conn, queue.JobFilter(("k",)), 60.0), small=True
            )
        costs.append(len(ticks))
    assert costs[1] <= 2 * costs[0]


async def test_a_credential_that_nothing_waits_for_is_no_write(db):
    worker, version = Worker(db), db.version
    worker.resume("acme")
    await worker._tick()
    await asyncio.sleep(0.03)
    assert db.version == version
    await add(db, QueuedJob("k"))
    await set_all(db, state="waiting")
    worker.resume(None)
    await worker._tick()
    assert [j["state"] for j in await jobs(db)] == ["ready"]


async def test_failures_wait_longer_each_time_and_end_dead(db):
    worker = Worker(db)

    async def fail(job):
        raise RuntimeError("the user's words")

    worker.register("k", fail)
    await add(db, QueuedJob("k"))
    waits = []
    for _ in range(queue.ATTEMPTS):
        await worker.drain()
        (job,) = await jobs(db)
        waits.append(job["run_at"] - time.time())
        await set_all(db, run_at=0)
    assert job["state"] == "dead"
    assert job["error"] == "RuntimeError"
    assert waits[0] < waits[1] < waits[2] < waits[3]
    await worker.drain()
    assert (await jobs(db))[0]["attempts"] == queue.ATTEMPTS


async def test_a_job_that_kills_its_workers_ends_dead(db):
    await add(db, QueuedJob("k"))
    for _ in range(queue.ATTEMPTS):
        assert await claim(db, lease=-1) is not None
    assert await claim(db, lease=-1) is None
    assert (await jobs(db))[0]["state"] == "dead"


async def test_a_job_that_cannot_be_read_ends_dead_and_the_others_go_on(db):
    done = []

    async def handle(job):
        done.append(job.payload)

    worker = Worker(db, poll=0.01)
    worker.register("k", handle)
    await add(db, QueuedJob("k", {"n": 1}))
    await set_all(db, payload="{")
    await add(db, QueuedJob("k", {"n": 2}))
    worker.start()
    async with asyncio.timeout(5):
        while len(await jobs(db)) > 1:
            await asyncio.sleep(0.01)
    await worker.stop()
    assert done == [{"n": 2}]
    assert [(j["state"], j["error"]) for j in await jobs(db)] == [("dead", "DecodeError")]


async def test_a_stop_puts_the_running_job_back(db):
    started = asyncio.Event()

    async def slow(job):
        started.set()
        await asyncio.sleep(100)

    worker = Worker(db, poll=0.01)
    worker.register("k", slow)
    await add(db, QueuedJob("k"))
    worker.start()
    async with asyncio.timeout(5):
        await started.wait()
    await worker.stop()
    (job,) = await jobs(db)
    assert (job["state"], job["attempts"], job["lease_until"]) == ("ready", 0, None)


async def test_a_handler_has_its_lease_and_no_longer(db):
    async def slow(job):
        await asyncio.sleep(100)

    worker = Worker(db, lease=0.05)
    worker.register("k", slow)
    await add(db, QueuedJob("k"))
    await worker.drain()
    assert [(j["state"], j["error"]) for j in await jobs(db)] == [("ready", "TimeoutError")]


async def test_periodic_jobs_come_by_themselves(db):
    ran = asyncio.Event()

    async def handle(job):
        ran.set()

    worker = Worker(db, poll=0.01)
    worker.register("k", handle, interval=1000)
    worker.start()
    assert await asyncio.wait_for(ran.wait(), 5)
    await worker.stop()


async def test_the_store_may_fail_under_a_worker(db):
    worker = Worker(db, poll=0.01)
    worker.register("k", lambda job: asyncio.sleep(0), interval=0)
    await db.close()
    worker.start()
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in worker._tasks)
    await worker.stop()


async def test_what_follows_an_erasure_reaches_the_index(db):
    gone = []

    async def forget(scope_id, kind, keys):
        gone.append((scope_id, kind, keys))

    worker = Worker(db)
    worker.register("erase", maintenance.erase_handler(db, forget))
    await add(
        db,
        QueuedJob("erase", {"scopes": [1, 2], "passages": {"3": [4, 5]}}),
        QueuedJob("erase", {"scopes": [], "messages": {"3": [6]}}),
    )
    await worker.drain()
    assert gone == [(1, None, None), (2, None, None), (3, "passages", [4, 5]), (3, "messages", [6])]
    without = Worker(db)
    maintenance.register(without, db, maintenance.RetentionPolicy(7, 30), Retriever(db))
    await add(db, QueuedJob("erase", {"scopes": [1], "passages": {}}))
    await without.drain()
    # Another worker may have been writing: there, each runs once more after its lease.
    left = [json.loads(job["payload"]) for job in await jobs(db)]
    assert [job.get("again") for job in left] == [True] * (3 if stores.POSTGRES else 0)


async def test_old_records_leave_and_young_ones_stay(db):
    now, day = time.time(), 86400.0

    def fill(conn):
        ids = {
            u: owners.get_or_create(
                conn, owners.current_owner(conn, Scope("t", u, "default", b"s" * 32))
            )
            for u in ("ada", None)
        }
        for i, age in enumerate((1, 8, 40)):
            conn.execute(
                insert(t.explains).values(
                    id=key_at(now - age * day),
                    scope_id=ids["ada"],
                    record="{}",
                    created_at=now - age * day,
                )
            )
            for user, scope_id in ids.items():
                key = i * 2 + bool(user) + 1
                conn.execute(
                    insert(t.conversations).values(
                        id=key,
                        scope_id=scope_id,
                        name=f"{user}{age}",
                        explicit=False,
                        created_at=now - age * day,
                        updated_at=now - age * day,
                    )
                )
                conn.execute(
                    insert(t.nodes).values(
                        id=key,
                        scope_id=scope_id,
                        conversation=key,
                        turn=key,
                        depth=1,
                        state="done",
                        branch=key,
                        at=now - age * day + 3600,
                        request=b"r" if user else None,
                    )
                )
                conn.execute(
                    insert(t.passages).values(
                        id=key,
                        public_id=f"p{key}",
                        scope_id=scope_id,
                        node=0 if user else key,
                        content="x",
                        digest=bytes([key]),
                        actor="model",
                        created_at=now,
                    )
                )

    await db.write(fill)
    gone = []

    async def forget(scope_id, kind, keys):
        gone.extend(keys)

    worker = Worker(db)
    maintenance.register(
        worker, db, maintenance.RetentionPolicy(explain=7, unnamed=30), Retriever(db)
    )
    worker.register("erase", maintenance.erase_handler(db, forget))
    await add(db, QueuedJob("expire"))
    await worker.drain()
    await worker.drain()

    def left(conn):
        return (
            {*conn.execute(select(t.explains.c.created_at)).scalars()},
            {r.name for r in conn.execute(select(t.conversations.c.name))},
            len(conn.execute(select(t.nodes).where(t.nodes.c.request.is_not(None))).all()),
            len(conn.execute(select(t.passages)).all()),
        )

    assert await db.read(left) == ({now - day}, {"ada1", "ada8", "ada40", "None1", "None8"}, 1, 5)
    assert gone == [5]


async def test_an_effect_is_written_as_its_job_is_settled_and_once(db):
    def effect(conn):
        queue.enqueue(conn, QueuedJob("effect"))

    await add(db, QueuedJob("k"))
    first = await claim(db, lease=-1)
    second = await claim(db)
    await db.write(lambda conn: queue.complete(conn, first, effect))
    assert [j["kind"] for j in await jobs(db)] == ["k"]
    await db.write(lambda conn: queue.complete(conn, second, effect))
    await db.write(lambda conn: queue.complete(conn, second, effect))
    assert [j["kind"] for j in await jobs(db)] == ["effect"]


async def test_an_effect_that_fails_leaves_its_job_to_be_tried_again(db):
    worker = Worker(db)

    async def handle(job):
        return lambda conn: conn.execute(t.jobs.insert().values(kind="half")) and 1 / 0

    worker.register("k", handle)
    await add(db, QueuedJob("k"))
    await worker.drain()
    assert [(j["kind"], j["state"], j["attempts"]) for j in await jobs(db)] == [("k", "ready", 1)]


async def test_a_step_of_a_job_that_is_no_longer_this_workers_is_not_written(db):
    await add(db, QueuedJob("k", {"n": 0}))
    first = await claim(db, lease=-1)
    await db.write(lambda conn: queue.advance(conn, first.job, {"n": 1}))
    second = await claim(db)
    assert second.job.payload == {"n": 1}
    with pytest.raises(Conflict):
        await db.write(lambda conn: queue.advance(conn, first.job, {"n": 2}))
    await db.write(lambda conn: conn.execute(delete(t.jobs)) and None)
    with pytest.raises(Conflict):
        await db.write(lambda conn: queue.advance(conn, second.job, {"n": 2}))


async def test_a_job_without_a_credential_waits_with_its_attempts_unspent(db):
    there = []

    async def handle(job):
        if not there:
            raise Postponed("none")

    worker = Worker(db, poll=0.01)
    worker.register("k", handle, slow=True)
    scopes = [
        await db.write(
            lambda conn, n=n: owners.get_or_create(
                conn, owners.current_owner(conn, Scope(n, "ada", "default", b"s" * 32))
            )
        )
        for n in ("acme", "other")
    ]
    await add(db, *(QueuedJob("k", scope_id=s) for s in scopes))
    await worker.drain()
    assert [(j["state"], j["attempts"]) for j in await jobs(db)] == [("waiting", 0)] * 2
    there.append(True)
    await db.write(lambda conn: queue.resume(conn, "other"))
    assert [j["state"] for j in await jobs(db)] == ["waiting", "ready"]
    await worker.drain()
    worker.resume("acme")
    worker.start()
    async with asyncio.timeout(5):
        while await jobs(db):
            await asyncio.sleep(0.01)
    await worker.stop()


async def test_a_conversation_has_one_job_of_a_kind_that_wants_to_be_alone(db):
    one = QueuedJob("k", conversation=7, alone=True)
    await add(
        db,
        one,
        one,
        QueuedJob("k", conversation=8, alone=True),
        QueuedJob("other", conversation=7, alone=True),
    )
    assert len(await jobs(db)) == 3
    claimed = await claim(db)
    await add(db, one)
    # Not while it runs, either.
    assert len(await jobs(db)) == 3
    await db.write(lambda conn: queue.fail(conn, claimed, "x", max_attempts=1))
    await add(db, one)
    assert sorted(j["state"] for j in await jobs(db)) == ["dead", "ready", "ready", "ready"]


async def test_a_waiting_job_can_be_put_off(db):
    await add(db, QueuedJob("k", dedupe="a", delay=10, again=True))
    before = (await jobs(db))[0]["run_at"]
    await add(db, QueuedJob("k", dedupe="a", delay=100, again=True))
    assert [j["run_at"] > before + 80 for j in await jobs(db)] == [True]


async def test_what_is_quick_never_waits_for_what_is_slow(db):
    ran = asyncio.Event()

    async def slow(job):
        await asyncio.sleep(100)

    async def quick(job):
        ran.set()

    worker = Worker(db, poll=0.01)
    worker.register("slow", slow, slow=True)
    worker.register("quick", quick)
    await add(db, *(QueuedJob("slow") for _ in range(9)), QueuedJob("quick"))
    worker.start()
    await asyncio.wait_for(ran.wait(), 5)
    await worker.stop()
    assert {(j["state"], j["attempts"]) for j in await jobs(db)} == {("ready", 0)}


async def test_dead_jobs_leave_in_time(db):
    await add(db, QueuedJob("k"), QueuedJob("k"))
    await set_all(db, state="dead", run_at=time.time() - 31 * 86400)
    await add(db, QueuedJob("k"))
    worker = Worker(db)
    maintenance.register(worker, db, maintenance.RetentionPolicy(7, 30), Retriever(db))
    await add(db, QueuedJob("expire"))
    await worker.drain()
    assert [j["state"] for j in await jobs(db)] == ["ready"]


async def test_a_stop_that_meets_a_wake_ends_every_hand(db):
    """Before Python 3.12 `wait_for` loses a cancellation that meets its result."""
    for _ in range(20):
        worker = Worker(db, poll=600)
        worker.register("x", ignored)
        worker.start()
        await asyncio.sleep(0.02)
        worker.wake()
        async with asyncio.timeout(30):
            await worker.stop()


async def ignored(_):
    return None


async def test_one_job_of_a_kind_runs_for_a_conversation_at_a_time(db):
    first, other = QueuedJob("k", conversation=1), QueuedJob("k", conversation=2)
    await add(db, first, first, other, QueuedJob("other", conversation=1))
    claimed = [await claim(db), await claim(db)]
    assert [one.job.conversation for one in claimed] == [1, 2]
    assert await claim(db) is None
    await db.write(lambda conn: queue.complete(conn, claimed[0]))
    assert (await claim(db)).job.conversation == 1


async def test_a_job_that_needs_a_credential_is_left_to_who_holds_it(postgres_url):
    """On Postgres, where others may hold it."""

    def begin(conn):
        for tenant in ("acme", "other"):
            owner = owners.ScopeOwner(Scope(tenant, "ada", "a", stores.SECRET), 0)
            queue.enqueue(conn, QueuedJob("k", scope_id=owners.get_or_create(conn, owner)))

    db = Database(postgres_url, secret=stores.SECRET)
    await db.open()
    await db.write(begin)
    for tenants, found in (([], 0), (["acme"], 1), (["acme"], 0), (["acme", "other"], 1)):
        which = queue.JobFilter(("k",), frozenset("k"), tenants)
        assert bool(await db.read(queue.due(which), single=True)) is bool(found)
        claimed = await db.write(lambda conn, which=which: queue.claim(conn, which, 60.0))
        assert (claimed is not None) is bool(found)
    await db.close()
