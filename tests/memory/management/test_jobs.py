"""Jobs from outside: those that gave up, and another try."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from memory import NotFound, VisibleScopes
from memory.management import jobs
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.jobs import QueuedJob, enqueue

EVERYTHING = VisibleScopes(None)


async def test_a_job_that_gave_up_is_listed_and_tried_again(store):
    def give_up(conn):
        enqueue(conn, QueuedJob("k"))
        conn.execute(update(t.jobs).values(state="dead", attempts=5))

    await store.db.write(give_up)
    [dead] = await jobs.list_jobs(store, EVERYTHING, "dead", None, 10)
    assert (dead["kind"], dead["attempts"]) == ("k", 5)
    assert await jobs.list_jobs(store, VisibleScopes("acme"), "dead", None, 10) == []
    with pytest.raises(NotFound):
        await jobs.retry_job(store, VisibleScopes("acme"), dead["id"])
    await jobs.retry_job(store, EVERYTHING, dead["id"])
    assert await jobs.list_jobs(store, EVERYTHING, "dead", None, 10) == []
    [ready] = await jobs.list_jobs(store, EVERYTHING, "ready", None, 10)
    assert (ready["id"], ready["attempts"]) == (dead["id"], 0)
