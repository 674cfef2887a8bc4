"""The durable queue: one row for each job, written in the transaction that caused it.

- A job is claimed under a lease. If its worker dies, the lease expires and another one takes over.
  A worker that outlived its lease can no longer complete the job: `attempts` is the fencing token.
  So a handler may run twice: handlers are idempotent.
- Each failure doubles the delay; after the last attempt the job is dead and kept for inspection.
- A `dedupe` key applies while a job waits, not once it runs: later requests make a new job.
- What a handler returns is written in the transaction that completes its job, and only while the
  worker still holds it: a job's effect happens once. A handler with many steps saves each with
  `advance`, and resumes after the last one.
- `scope_id` ties a job to a user: erasing the user removes it. The job that follows an erasure has
  none, and names nobody. `conversation` ties it to one conversation in the same way.
- A job that lacks a credential is `waiting`, without using up attempts, until `resume`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    null,
    or_,
    select,
    true,
    update,
)

from memory.errors import Conflict
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import Query, execute, execute_sql, insert_with_conflict

j = t.jobs.c
# Some six hours in all.
ATTEMPTS = 16
# Attempts if a model's answer is unusable, since the prompt does not change.
ANSWERS = 3
COLUMNS = ("scope_id", "conversation", "kind", "payload", "dedupe", "run_at", "created_at")
# Attempts, after which nobody waits for a job, although it is still retried.
STALE = 3
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
POSTPONE = (
    update(t.jobs)
    .where(j.dedupe == bindparam("which"))
    .values(run_at=bindparam("run"))
    .returning(j.id)
)
DEAD = {"state": "dead", "lease_until": None, "dedupe": None}
# Seconds before the second attempt, and at most.
BACKOFF, MAX_BACKOFF_SECONDS = 2.0, 3600.0


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job to queue.

    payload: JSON data; row keys only, if the job must outlive an erasure. delay: seconds. alone:
    not while another of its kind waits or runs for this conversation. again: a waiting job with the
    same dedupe key is postponed by `delay`. every: only with each so many turns of the scope.
    unread: only if extraction has not read so many turns of it. held: the claim of a running job,
    as its id and attempt.
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
    unread: int = 0
    held: tuple[int, int] = (0, 0)


Effect = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job held by a worker until `lease_until` (Unix time)."""

    id: int
    job: QueuedJob
    attempts: int
    lease_until: float


def enqueue(conn: Connection, job: QueuedJob) -> None:
    """Add the job, unless one with the same dedupe key is waiting."""
    now = clock.now()
    # What is claimed meanwhile waits no more, and does not stand for this one.
    postponed_job = {"which": job.dedupe, "run": now + job.delay}
    if job.again and execute(conn, POSTPONE, postponed_job).first() is not None:
        return
    if job.alone and job.conversation is not None and under_way(conn, job.kind, job.conversation):
        return
    execute(
        conn,
        _unless_there(sql_driver(conn)),
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


SCHEDULE = """
INSERT INTO schedules (kind, next_at) VALUES ($1, $2) ON CONFLICT (kind) DO UPDATE
SET next_at = excluded.next_at WHERE schedules.next_at <= $3 RETURNING kind"""
# That a worker may look too early.
SLACK_SECONDS = 1.0


def enqueue_periodic(conn: Connection, kind: str, interval: float) -> None:
    """Add a periodic job, unless one waits.

    interval: seconds in which one of all workers adds it; 0 for the only process.
    """
    now = clock.now()
    if not interval or execute_sql(conn, SCHEDULE, kind, now + interval, now + SLACK_SECONDS):
        enqueue(conn, QueuedJob(kind, dedupe=f"every:{kind}"))


@cache
def _unless_there(driver: SqlDriver) -> Any:
    return insert_with_conflict(driver, t.jobs, COLUMNS).on_conflict_do_nothing(
        index_elements=["dedupe"]
    )


def under_way(conn: Connection, kind: str, conversation: int) -> bool:
    """Tell whether such a job waits or runs for the conversation and has not failed often."""
    return (
        execute(conn, UNDER_WAY, {"conversation": conversation, "kind": kind}).first() is not None
    )


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a worker may claim.

    kinds: of jobs. limited: those of them that are only for these tenants, whose credential it
    holds.
    """

    kinds: tuple[str, ...]
    limited: frozenset[str] = frozenset()
    tenants: Collection[str] = ()


def _ripe(job_filter: JobFilter, now: Any) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the condition for jobs of dead workers and waiting jobs that are due.

    Not while another of its kind runs for its scope, or its conversation.
    """
    other_job = t.jobs.alias().c
    is_same_conversation = or_(
        and_(j.conversation.is_not(None), other_job.conversation == j.conversation),
        and_(
            j.conversation.is_(None),
            other_job.conversation.is_(None),
            other_job.scope_id == j.scope_id,
        ),
    )
    is_running = (
        (other_job.kind == j.kind) & (other_job.state == "running") & (other_job.lease_until >= now)
    )
    claim_clauses = [
        j.kind.in_(_names("kind", job_filter.kinds)),
        ~exists().where(is_running, is_same_conversation),
    ]
    if job_filter.limited:
        scopes = t.scopes.c
        tenants = bindparam("tenants", list(job_filter.tenants), type_=ARRAY(Text))
        limited_scopes = select(scopes.id).where(scopes.tenant == func.any(tenants))
        claim_clauses.append(
            or_(
                j.kind.not_in(_names("limited", job_filter.limited)), j.scope_id.in_(limited_scopes)
            )
        )
    return (
        and_(*claim_clauses, j.state == "running", j.lease_until < now),
        and_(*claim_clauses, j.state == "ready", j.run_at <= now),
    )


def _names(prefix: str, kinds: Collection[str]) -> list[Any]:
    return [bindparam(f"{prefix}{i}", kind) for i, kind in enumerate(sorted(kinds))]


def due(job_filter: JobFilter) -> Query:
    """Return the query for a job that may be claimed.

    It is a read, so that an idle worker never writes.
    """
    values = {"now": clock.now(), "tenants": list(job_filter.tenants)}
    return Query(_due(job_filter.kinds, job_filter.limited), values)


@cache
def _due(kinds: tuple[str, ...], limited_kinds: frozenset[str]) -> Any:
    """Return the statement of `due`, built once, since idle workers run it each second."""
    return (
        select(j.id).where(or_(*_ripe(JobFilter(kinds, limited_kinds), bindparam("now")))).limit(1)
    )


@cache
def _claimable(kinds: tuple[str, ...], limited_kinds: frozenset[str]) -> Sequence[Any]:
    """Return the statements for the next job of dead workers, and the next that waits.

    In index order, so that later jobs are neither read nor sorted.
    """
    return [
        select(t.jobs)
        .where(ripe)
        .order_by(j.run_at, j.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=t.jobs)
        for ripe in _ripe(JobFilter(kinds, limited_kinds), bindparam("now"))
    ]


def _oldest(conn: Connection, job_filter: JobFilter, now: float) -> Any:
    """Return the oldest job that is due; None if there is none."""
    values = {"now": now, "tenants": list(job_filter.tenants)}
    for query in _claimable(job_filter.kinds, job_filter.limited):
        while (row := execute(conn, query, values).first()) is not None:
            if row.attempts < ATTEMPTS:
                return row
            conn.execute(update(t.jobs).where(j.id == row.id).values(**DEAD))
    return None


CLAIM = (
    update(t.jobs)
    .where(j.id == bindparam("which"))
    .values(
        state="running",
        attempts=bindparam("tried"),
        lease_until=bindparam("until"),
        dedupe=null(),
    )
)
TRY_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"


def _claims_alone(conn: Connection, row: Row[Any], job_filter: JobFilter, now: float) -> bool:
    """Tell whether no other worker claims or runs a job of this kind for the same scope."""
    if not sql_driver(conn).is_shared or row.scope_id is None:
        return True
    name = f"job {row.kind} {row.scope_id} {row.conversation}"
    if not execute_sql(conn, TRY_ALONE, name)[0][0]:
        return False
    # Another may have claimed one between the look that found this and the lock.
    ripe = or_(*_ripe(job_filter, now))
    return conn.execute(select(j.id).where(j.id == row.id, ripe)).first() is not None


def claim(conn: Connection, job_filter: JobFilter, lease: float) -> ClaimedJob | None:
    """Take the oldest job that is due, for `lease` seconds; jobs of dead workers first.

    Jobs with too many attempts are set aside as dead.
    """
    now = clock.now()
    row = _oldest(conn, job_filter, now)
    if row is None or not _claims_alone(conn, row, job_filter, now):
        return None
    try:
        payload = msgspec.json.decode(row.payload)
    except msgspec.DecodeError as e:
        # It can never run, and must not block others.
        conn.execute(update(t.jobs).where(j.id == row.id).values(**DEAD, error=type(e).__name__))
        return None
    execute(conn, CLAIM, {"which": row.id, "tried": row.attempts + 1, "until": now + lease})
    job = QueuedJob(
        row.kind,
        payload,
        row.scope_id,
        conversation=row.conversation,
        held=(row.id, row.attempts + 1),
    )
    return ClaimedJob(row.id, job, row.attempts + 1, now + lease)


def _claimed_row(claimed_job: ClaimedJob) -> ColumnElement[bool]:
    return and_(j.id == claimed_job.id, j.attempts == claimed_job.attempts, j.state == "running")


def complete(conn: Connection, claimed_job: ClaimedJob, effect: Effect | None = None) -> None:
    """Complete the job together with its effect, if this worker still holds it."""
    if (
        conn.execute(delete(t.jobs).where(_claimed_row(claimed_job))).rowcount
        and effect is not None
    ):
        effect(conn)


def advance(conn: Connection, job: QueuedJob, payload: dict[str, Any]) -> None:
    """Save a step of a running job: a later attempt gets this payload.

    Raises Conflict if the worker no longer holds the job, so that the same transaction writes
    nothing.
    """
    ident, attempts = job.held
    is_own_attempt = and_(j.id == ident, j.attempts == attempts, j.state == "running")
    if (
        conn.execute(
            update(t.jobs)
            .where(is_own_attempt)
            .values(payload=msgspec.json.encode(payload).decode())
        ).rowcount
        == 0
    ):
        raise Conflict("the job was taken over or erased while it ran")


def postpone(conn: Connection, claimed_job: ClaimedJob) -> None:
    """Return the job until `resume`, as if it had not been claimed."""
    conn.execute(
        update(t.jobs)
        .where(_claimed_row(claimed_job))
        .values(state="waiting", lease_until=None, attempts=claimed_job.attempts - 1)
    )


def _is_waiting(tenant: str | None) -> ColumnElement[bool]:
    scopes = t.scopes.c
    is_tenants = (
        j.scope_id.in_(select(scopes.id).where(scopes.tenant == tenant))
        if tenant is not None
        else true()
    )
    return and_(j.state == "waiting", is_tenants)


def waits(conn: Connection, tenant: str | None = None) -> bool:
    """Tell whether there is something to `resume`."""
    return conn.execute(select(j.id).where(_is_waiting(tenant)).limit(1)).first() is not None


def resume(conn: Connection, tenant: str | None = None) -> None:
    """Make jobs ready that wait for a request of this tenant; None: of any."""
    conn.execute(
        update(t.jobs).where(_is_waiting(tenant)).values(state="ready", run_at=clock.now())
    )


def delete_dead(conn: Connection, before: float) -> int:
    """Remove so many dead jobs that were due before this time.

    Returns their number; call again until it is 0.
    """
    expired_ids = select(j.id).where(j.state == "dead", j.run_at < before).limit(1000)
    return conn.execute(delete(t.jobs).where(j.id.in_(expired_ids))).rowcount


def release(conn: Connection, claimed_job: ClaimedJob) -> None:
    """Return the job as if it had not been claimed: its worker is stopping."""
    conn.execute(
        update(t.jobs)
        .where(_claimed_row(claimed_job))
        .values(state="ready", lease_until=None, attempts=claimed_job.attempts - 1)
    )


_FAILED = (
    update(t.jobs)
    .where(j.id == bindparam("claimed"), j.attempts == bindparam("count"), j.state == "running")
    .values(lease_until=null(), error=bindparam("failure"))
)
_SET_ASIDE = _FAILED.values(state="dead")
_QUEUED_AGAIN = _FAILED.values(state="ready", run_at=bindparam("next_at"))


def fail(
    conn: Connection, claimed_job: ClaimedJob, error: str, max_attempts: int = ATTEMPTS
) -> None:
    """Queue the job again with a delay, or set it aside after `max_attempts` attempts.

    error: the kind of failure, without a user's text.
    """
    is_last = claimed_job.attempts >= max_attempts
    wait = min(MAX_BACKOFF_SECONDS, BACKOFF * 2 ** (claimed_job.attempts - 1))
    values = {"next_at": clock.now() + wait * random.uniform(0.8, 1.2), "failure": error}
    claimed = {"claimed": claimed_job.id, "count": claimed_job.attempts}
    execute(conn, _SET_ASIDE if is_last else _QUEUED_AGAIN, {**claimed, **values})
