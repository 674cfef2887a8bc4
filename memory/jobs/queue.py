"""The durable queue: a row a job, written in the transaction of what caused it, so that neither happens without the other.

- A job is claimed under a lease. A worker that dies loses it when the lease ends; another takes the job over. A worker that
  outlived its lease can no longer settle the job: `attempts` is the fence. So a handler may run twice: handlers are idempotent.
- A failure waits twice as long each time; after the last attempt the job is dead, kept for a person to look at.
- A `dedupe` key holds while a job waits, not once it runs: what comes after it started is a job of its own.
- `scope_id` ties a job to a user: erasing the user removes it. The job that follows an erasure has none, and names no one.
"""
from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from memory.stores.sql import schema as t

j = t.jobs.c
ATTEMPTS = 16  # some six hours in all
BACKOFF, LONGEST = 2.0, 3600.0  # seconds before the second attempt, and at most


@dataclass(frozen=True, slots=True)
class Job:
    """Work to do. payload: JSON data, row keys only where the job must outlive an erasure. delay: seconds."""

    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    scope_id: int | None = None
    dedupe: str | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A job in a worker's hands, until `lease_until` (seconds since 1970)."""

    id: int
    job: Job
    attempts: int
    lease_until: float


def enqueue(conn: Connection, job: Job) -> None:
    """Adds the job, unless one of the same dedupe key waits already."""
    now = time.time()
    if job.dedupe is not None and conn.execute(select(j.id).where(j.dedupe == job.dedupe)).first() is not None:
        return
    conn.execute(insert(t.jobs).values(
        scope_id=job.scope_id, kind=job.kind, payload=msgspec.json.encode(job.payload).decode(), dedupe=job.dedupe, run_at=now + job.delay, created_at=now))


def _ripe(kinds: Collection[str], now: float) -> ColumnElement[bool]:
    waiting = and_(j.state == "ready", j.run_at <= now)
    return and_(j.kind.in_(kinds), or_(waiting, and_(j.state == "running", j.lease_until < now)))


def due(conn: Connection, kinds: Collection[str]) -> bool:
    """Whether there is something to claim: a read, so that an idle worker never writes."""
    return conn.execute(select(j.id).where(_ripe(kinds, time.time())).limit(1)).first() is not None


def claim(conn: Connection, kinds: Collection[str], lease: float) -> Claim | None:
    """Takes the oldest job that is due, for `lease` seconds; jobs that died in too many hands are set aside."""
    now = time.time()
    conn.execute(update(t.jobs).where(_ripe(kinds, now), j.attempts >= ATTEMPTS).values(state="dead", lease_until=None, dedupe=None))
    row = conn.execute(select(t.jobs).where(_ripe(kinds, now)).order_by(j.run_at, j.id).limit(1).with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    conn.execute(update(t.jobs).where(j.id == row.id).values(state="running", attempts=row.attempts + 1, lease_until=now + lease, dedupe=None))
    return Claim(row.id, Job(row.kind, msgspec.json.decode(row.payload), row.scope_id), row.attempts + 1, now + lease)


def _held(claimed: Claim) -> ColumnElement[bool]:
    return and_(j.id == claimed.id, j.attempts == claimed.attempts, j.state == "running")


def done(conn: Connection, claimed: Claim) -> None:
    conn.execute(delete(t.jobs).where(_held(claimed)))


def returned(conn: Connection, claimed: Claim) -> None:
    """Puts the job back as if it had not been claimed: its worker is stopping."""
    conn.execute(update(t.jobs).where(_held(claimed)).values(state="ready", lease_until=None, attempts=claimed.attempts - 1))


def failed(conn: Connection, claimed: Claim, error: str) -> None:
    """Puts the job back to wait, or sets it aside. error: what kind of failure; no text of a user's."""
    values: dict[str, Any] = {"lease_until": None, "error": error}
    if claimed.attempts >= ATTEMPTS:
        values["state"] = "dead"
    else:
        wait = min(LONGEST, BACKOFF * 2 ** (claimed.attempts - 1))
        values |= {"state": "ready", "run_at": time.time() + wait * random.uniform(0.8, 1.2)}
    conn.execute(update(t.jobs).where(_held(claimed)).values(**values))
