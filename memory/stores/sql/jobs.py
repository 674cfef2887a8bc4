"""The durable queue: a row a job, written in the transaction of what caused it, so that neither
happens without the other.

- A job is claimed under a lease. A worker that dies loses it when the lease ends; another takes the
  job over. A worker that
  outlived its lease can no longer settle the job: `attempts` is the fence. So a handler may run
  twice: handlers are idempotent.
- A failure waits twice as long each time; after the last attempt the job is dead, kept for a person
  to look at.
- A `dedupe` key holds while a job waits, not once it runs: what comes after it started is a job of
  its own.
- What a handler returns is written in the transaction that settles its job, and only while the job
  is still its own: a job's
  effect happens once. A handler of many steps enters each with `advance`, and begins after the last
  one when it runs again.
- `scope_id` ties a job to a user: erasing the user removes it. The job that follows an erasure has
  none, and names no one.
  `conversation` ties it to one conversation in the same way.
- A job that lacks a credential is `waiting`, its attempts unspent, until `resume`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    or_,
    select,
    true,
    update,
)

from memory.errors import Conflict
from memory.stores.sql import schema as t
from memory.stores.sql.statements import dialect_insert, execute

j = t.jobs.c
ATTEMPTS = 16  # some six hours in all
ANSWERS = 3  # of a model that gave nothing to use: what it is asked does not change
COLUMNS = ("scope_id", "conversation", "kind", "payload", "dedupe", "run_at", "created_at")
STALE = 3  # attempts, after which nobody waits for a job any more: it goes on trying
UNDER_WAY = (
    select(j.id)
    .where(
        j.conversation == bindparam("conversation"),
        j.kind == bindparam("kind"),
        j.state != "dead",
        j.attempts < STALE,
    )
    .limit(1)
)
DEAD = {"state": "dead", "lease_until": None, "dedupe": None}
BACKOFF, MAX_BACKOFF_SECONDS = 2.0, 3600.0  # seconds before the second attempt, and at most


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Work to do.

    payload: JSON data, row keys only where the job must outlive an erasure. delay: seconds.

    alone: not while another of its kind waits or runs for this conversation. again: one of the same
    dedupe key that waits is put off by `delay`. every: only with each so many turns of the scope.
    held: the claim under which a handler has it, as its id and attempt.
    """

    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    scope_id: int | None = None
    dedupe: str | None = None
    delay: float = 0.0
    conversation: int | None = None
    alone: bool = False
    again: bool = False
    every: int = 0
    held: tuple[int, int] = (0, 0)


Effect = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job in a worker's hands, until `lease_until` (seconds since 1970)."""

    id: int
    job: QueuedJob
    attempts: int
    lease_until: float


def enqueue(conn: Connection, job: QueuedJob) -> None:
    """Add the job, unless one of the same dedupe key waits already."""
    now = time.time()
    if (
        job.again
        and conn.execute(
            update(t.jobs).where(j.dedupe == job.dedupe).values(run_at=now + job.delay)
        ).rowcount
    ):
        return
    if job.alone and job.conversation is not None and under_way(conn, job.kind, job.conversation):
        return
    execute(
        conn,
        _unless_there(conn.dialect.name),
        {
            "scope_id": job.scope_id,
            "conversation": job.conversation,
            "kind": job.kind,
            "payload": msgspec.json.encode(job.payload).decode(),
            "dedupe": job.dedupe,
            "run_at": now + job.delay,
            "created_at": now,
        },
    )


@cache
def _unless_there(dialect: str) -> Any:
    return dialect_insert(dialect, t.jobs, COLUMNS).on_conflict_do_nothing(
        index_elements=["dedupe"]
    )


def under_way(conn: Connection, kind: str, conversation: int) -> bool:
    """Tell whether a job of this kind waits or runs for the conversation, and has not failed
    often.
    """
    return (
        execute(conn, UNDER_WAY, {"conversation": conversation, "kind": kind}).first() is not None
    )


def _ripe(kinds: Collection[Any], now: Any) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return what a worker that died had, and what waits and is due."""
    return (
        and_(j.kind.in_(kinds), j.state == "running", j.lease_until < now),
        and_(j.kind.in_(kinds), j.state == "ready", j.run_at <= now),
    )


def due(conn: Connection, kinds: Collection[str]) -> bool:
    """Tell whether there is something to claim: a read, so that an idle worker never writes."""
    return execute(conn, _due(tuple(kinds)), {"now": time.time()}).first() is not None


@cache
def _due(kinds: tuple[str, ...]) -> Any:
    """Built once: each hand of an idle worker asks it each second."""
    return (
        select(j.id)
        .where(
            or_(
                *_ripe(
                    [bindparam(f"kind{i}", kind) for i, kind in enumerate(kinds)], bindparam("now")
                )
            )
        )
        .limit(1)
    )


def _oldest(conn: Connection, ripe: ColumnElement[bool]) -> Row[Any] | None:
    """In the order of an index: the many that may wait behind it are not looked at, nor sorted."""
    query = (
        select(t.jobs)
        .where(ripe)
        .order_by(j.run_at, j.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    while (row := conn.execute(query).first()) is not None and row.attempts >= ATTEMPTS:
        conn.execute(update(t.jobs).where(j.id == row.id).values(**DEAD))
    return row


def claim(conn: Connection, kinds: Collection[str], lease: float) -> ClaimedJob | None:
    """Take the oldest job that is due, for `lease` seconds, one of a worker that died first; jobs
    that died in too many hands are set aside.
    """
    now = time.time()
    row = next(
        (found for ripe in _ripe(kinds, now) if (found := _oldest(conn, ripe)) is not None), None
    )
    if row is None:
        return None
    try:
        payload = msgspec.json.decode(row.payload)
    except msgspec.DecodeError as e:  # nobody can ever run it: it must not stop those who try
        conn.execute(update(t.jobs).where(j.id == row.id).values(**DEAD, error=type(e).__name__))
        return None
    conn.execute(
        update(t.jobs)
        .where(j.id == row.id)
        .values(state="running", attempts=row.attempts + 1, lease_until=now + lease, dedupe=None)
    )
    job = QueuedJob(
        row.kind,
        payload,
        row.scope_id,
        conversation=row.conversation,
        held=(row.id, row.attempts + 1),
    )
    return ClaimedJob(row.id, job, row.attempts + 1, now + lease)


def _claimed_row(claimed: ClaimedJob) -> ColumnElement[bool]:
    return and_(j.id == claimed.id, j.attempts == claimed.attempts, j.state == "running")


def complete(conn: Connection, claimed: ClaimedJob, effect: Effect | None = None) -> None:
    """Settle the job together with what it is to write; nothing is written in the name of a job
    that is no longer this worker's.
    """
    if conn.execute(delete(t.jobs).where(_claimed_row(claimed))).rowcount and effect is not None:
        effect(conn)


def advance(conn: Connection, job: QueuedJob, payload: dict[str, Any]) -> None:
    """Enter a step of a running job: a later attempt finds this payload.

    Raises Conflict when the job is no longer this worker's, so that what stands in the same
    transaction is not written either.
    """
    ident, attempts = job.held
    mine = and_(j.id == ident, j.attempts == attempts, j.state == "running")
    if (
        conn.execute(
            update(t.jobs).where(mine).values(payload=msgspec.json.encode(payload).decode())
        ).rowcount
        == 0
    ):
        raise Conflict("the job was taken over or erased while it ran")


def postpone(conn: Connection, claimed: ClaimedJob) -> None:
    """Put the job back until `resume`, as if it had not been claimed."""
    conn.execute(
        update(t.jobs)
        .where(_claimed_row(claimed))
        .values(state="waiting", lease_until=None, attempts=claimed.attempts - 1)
    )


def _is_waiting(tenant: str | None) -> ColumnElement[bool]:
    scopes = t.scopes.c
    mine = (
        j.scope_id.in_(select(scopes.id).where(scopes.tenant == tenant))
        if tenant is not None
        else true()
    )
    return and_(j.state == "waiting", mine)


def waits(conn: Connection, tenant: str | None = None) -> bool:
    """Tell whether there is something to `resume`."""
    return conn.execute(select(j.id).where(_is_waiting(tenant)).limit(1)).first() is not None


def resume(conn: Connection, tenant: str | None = None) -> None:
    """Let the jobs go on that wait for a request of this tenant; None: of any."""
    conn.execute(
        update(t.jobs).where(_is_waiting(tenant)).values(state="ready", run_at=time.time())
    )


def delete_dead(conn: Connection, before: float) -> int:
    """Remove dead jobs that should have run before this time, so many.

    Returns how many; call again until 0.
    """
    old = select(j.id).where(j.state == "dead", j.run_at < before).limit(1000)
    return conn.execute(delete(t.jobs).where(j.id.in_(old))).rowcount


def release(conn: Connection, claimed: ClaimedJob) -> None:
    """Put the job back as if it had not been claimed: its worker is stopping."""
    conn.execute(
        update(t.jobs)
        .where(_claimed_row(claimed))
        .values(state="ready", lease_until=None, attempts=claimed.attempts - 1)
    )


def fail(conn: Connection, claimed: ClaimedJob, error: str, most: int = ATTEMPTS) -> None:
    """Put the job back to wait, or sets it aside after `most` attempts.

    error: what kind of failure; no text of a user's.
    """
    values: dict[str, Any] = {"lease_until": None, "error": error}
    if claimed.attempts >= most:
        values["state"] = "dead"
    else:
        wait = min(MAX_BACKOFF_SECONDS, BACKOFF * 2 ** (claimed.attempts - 1))
        values |= {"state": "ready", "run_at": time.time() + wait * random.uniform(0.8, 1.2)}
    conn.execute(update(t.jobs).where(_claimed_row(claimed)).values(**values))
