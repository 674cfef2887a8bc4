"""The usage table: written in batches, summed by group, listed record by record.

Users are named here until they are erased. Days are UTC. A cost of NULL is unknown: sums leave it
out, and a group says how many it contains.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    case,
    cast,
    delete,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DataError, IntegrityError

from memory.ids import clock
from memory.scope import owner_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import add_rows, execute_sql
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows.scopes import UserName, erased_at

c = t.usage.c
DAY = 86400.0
READ_SECONDS = 10.0
SPENT_SECONDS = 1.0
# A year to compare with, plus a month.
USAGE_DAYS = 400
# Rows removed in a transaction, so as not to block the writer for long.
BATCH = 1000
# Postgres' number: names are written, or an erasure takes them out.
NAMES_LOCK = 7_205_603
SUMMED = (
    "input",
    "cached_input",
    "cache_write",
    "output",
    "reasoning",
    "hidden_input",
    "hidden_output",
)

# Members whose empty value is nobody.
UNNAMED = ("user", "agent")

_days = c.created_at / DAY
_day = cast(_days, Integer)
# What records can be grouped by, in sort order: newest day first, unnamed users first. Some
# databases round a cast, others truncate.
MEMBERS: Mapping[str, ColumnElement[Any]] = {
    "tenant": c.tenant,
    "key": c.key,
    "user": func.coalesce(c.user, ""),
    "model": c.model,
    "target": c.target,
    "agent": c.agent,
    "day": case((_day > _days, 1), else_=0) - _day,
}


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which records; None matches all. since, until: Unix times, both included.

    failed: those alone that ended with an error.
    """

    tenant: str | None = None
    user: str | None = None
    key: str | None = None
    model: str | None = None
    since: float | None = None
    until: float | None = None
    request_id: str | None = None
    failed: bool = False

    def conditions(self) -> list[ColumnElement[bool]]:
        equalities = [
            c[name] == value
            for name in ("tenant", "user", "key", "model", "request_id")
            if (value := getattr(self, name)) is not None
        ]
        return [
            *equalities,
            *([c.status >= 400] if self.failed else []),
            *([c.created_at >= self.since] if self.since is not None else []),
            *([c.created_at <= self.until] if self.until is not None else []),
        ]


@dataclass(frozen=True, slots=True)
class UsageTotalsRow:
    """One group. place: its sort key. members: name to value. sums: the rest."""

    place: tuple[Any, ...]
    members: dict[str, Any]
    sums: dict[str, Any]


async def write_records(
    db: Database, rows: Callable[[], Sequence[dict[str, Any]]], secret: bytes
) -> None:
    """Write the records that `rows` returns inside the transaction.

    secret: by which erased users are known. Raises what `insert` raises.
    """

    def work(conn: Connection) -> None:
        records = rows()
        if sql_driver(conn).is_shared:
            _hide_erased(conn, records, secret)
        insert(conn, records)

    await db.write(db.apart_from_turns(work), small=True, lock=NOTHING)


def _hide_erased(conn: Connection, rows: Sequence[dict[str, Any]], secret: bytes) -> None:
    """Take the names of users out who were erased since, by whichever worker.

    An erasure waits for what is being written, and is seen by what is written after it.
    """
    execute_sql(conn, f"SELECT pg_advisory_xact_lock_shared({NAMES_LOCK})")
    owners = {
        (row["tenant"], row["user"]): owner_key(secret, row["tenant"], row["user"])
        for row in rows
        if row["user"] is not None
    }
    if owners:
        erasure_times = erased_at(conn, list(owners.values()))
    else:
        erasure_times = {}
    for row in rows:
        owner = owners.get((row["tenant"], row["user"]), b"")
        if row["created_at"] + clock.ahead <= erasure_times.get(owner, 0.0):
            row["user"] = None


async def read_groups(
    db: Database,
    by: Sequence[str],
    usage_filter: UsageFilter,
    after: Sequence[Any] | None,
    limit: int,
) -> list[UsageTotalsRow]:
    """Read sums by group, see `sum_groups`."""
    return await db.read(
        lambda conn: sum_groups(conn, by, usage_filter, after, limit), READ_SECONDS
    )


async def read_records(
    db: Database, usage_filter: UsageFilter, before: tuple[float, int] | None, limit: int
) -> list[dict[str, Any]]:
    """Read single records, see `list_records`."""
    return await db.read(lambda conn: list_records(conn, usage_filter, before, limit), READ_SECONDS)


async def read_spending(db: Database, key: str, since: float) -> float:
    """Read the USD that a key spent, see `spent_since`."""
    return await db.read(lambda conn: spent_since(conn, key, since), SPENT_SECONDS, of=NO_TURNS)


@dataclass(frozen=True, slots=True)
class CorrectedRecord:
    """A record before its correction. estimated: it was an estimate, which only then changes."""

    tokens: int
    cost: float
    estimated: bool


async def correct_record(
    db: Database, request: str, usage: Any, cost: float | None
) -> CorrectedRecord | None:
    """Replace an estimated record's tokens and cost; a record is an estimate only once.

    usage: with the names of the columns. Returns the record before; None if there is none.
    """
    names = ("input", "cached_input", "cache_write", "output", "reasoning")
    values = {name: getattr(usage, name) for name in names}
    query = select(c.id, c.cost, c.input, c.output).where(c.request_id == request).limit(1)

    def work(conn: Connection) -> CorrectedRecord | None:
        row = conn.execute(query).first()
        if row is None:
            return None
        is_estimated = (c.id == row.id) & c.estimated.is_(True)
        change = update(t.usage).where(is_estimated).values(**values, cost=cost, estimated=False)
        estimated = conn.execute(change).rowcount > 0
        return CorrectedRecord(row.input + row.output, float(row.cost or 0.0), estimated)

    return await db.write(work, small=True, lock=NOTHING)


class UsageTables:
    """The usage table as the memory's hook for erasure and expiry.

    on_erased: called with tenant and user name in the transaction that erases them; it may run on
    the writer's thread.
    """

    # The records stay, without the name.
    counted = ""

    def __init__(self, erasure_callback: Callable[[str, str], None]) -> None:
        self._erasure_callback = erasure_callback

    def keep(self, conn: Connection, row: dict[str, Any]) -> None:
        """Nothing: usage is written by itself."""

    def forget_batch(self, conn: Connection, tenant: str, user: str, limit: int) -> int:
        """Remove an erased user's name from at most so many records; return their number."""
        return forget(conn, tenant, user, limit)

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove an erased user's name from the remaining and from future records."""
        self._erasure_callback(tenant, user)
        if sql_driver(conn).is_shared:
            execute_sql(conn, f"SELECT pg_advisory_xact_lock({NAMES_LOCK})")
        forget(conn, tenant, user)

    def forget_conversations(
        self, conn: Connection, tenant: str, user: str | None, names: Sequence[str]
    ) -> None:
        """Nothing: usage names no conversation."""

    def rename(self, conn: Connection, source: UserName, target: UserName) -> None:
        """Nothing: the records tell under which name the requests were made."""

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of records older than `USAGE_DAYS`; return their number."""
        return older(conn, now - USAGE_DAYS * DAY)


def insert(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add records: the table's columns, without `id`.

    Raises ValueError for records that no database would accept.
    """
    try:
        add_rows(conn, t.usage, rows)
    except (
        DataError,
        IntegrityError,
        sqlite3.IntegrityError,
        sqlite3.InterfaceError,
        OverflowError,
        UnicodeEncodeError,
    ) as e:
        raise ValueError(f"a usage record does not fit its table: {type(e).__name__}") from e


def _count_where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def sum_groups(
    conn: Connection,
    by: Sequence[str],
    usage_filter: UsageFilter,
    after: Sequence[Any] | None,
    limit: int,
) -> list[UsageTotalsRow]:
    """Sum records by any of `MEMBERS`, in that order, after a group's `place`."""
    members = [MEMBERS[name] for name in by]
    sums = [
        func.count().label("requests"),
        _count_where(c.status >= 400).label("errors"),
        *(func.sum(c[name]).label(f"{name}_tokens") for name in SUMMED),
        func.sum(c.cost).label("cost_usd"),
        _count_where(c.cost.is_(None)).label("unpriced_requests"),
        _count_where(c.estimated.is_(True)).label("estimated_requests"),
        func.avg(c.latency_ms).label("latency_ms"),
        func.avg(c.first_token_ms).label("first_token_ms"),
    ]
    # Grouped by name: to Postgres, a parameter written twice is two expressions.
    names = [f"by_{name}" for name in by]
    query = select(*(m.label(n) for m, n in zip(members, names, strict=True)), *sums).where(
        *usage_filter.conditions()
    )
    if after is not None:
        query = query.where(tuple_(*members) > tuple_(*map(literal, after)))
    rows = conn.execute(query.group_by(*names).order_by(*names).limit(limit)).all()
    sum_names = [s.name for s in sums]
    return [
        UsageTotalsRow(
            tuple(r[: len(by)]),
            {name: _to_member(name, value) for name, value in zip(by, r, strict=False)},
            dict(zip(sum_names, r[len(by) :], strict=True)),
        )
        for r in rows
    ]


def _to_member(name: str, value: Any) -> Any:
    if name == "day":
        return datetime.fromtimestamp(-value * DAY, UTC).date().isoformat()
    if name in UNNAMED:
        return value or None
    return value


def list_records(
    conn: Connection, usage_filter: UsageFilter, before: tuple[float, int] | None, limit: int
) -> list[dict[str, Any]]:
    """List single records, newest first.

    before: created_at and id of the last one of the previous page.
    """
    query = select(t.usage).where(*usage_filter.conditions())
    if before is not None:
        query = query.where(tuple_(c.created_at, c.id) < tuple_(*map(literal, before)))
    return [
        dict(row._mapping)
        for row in conn.execute(query.order_by(c.created_at.desc(), c.id.desc()).limit(limit))
    ]


def spent_since(conn: Connection, key: str, since: float) -> float:
    """Return the USD that a key spent, as far as the costs are known.

    Counts requests that began at the Unix time `since` or later.
    """
    return (
        conn.execute(select(func.sum(c.cost)).where(c.key == key, c.created_at >= since)).scalar()
        or 0.0
    )


def forget(conn: Connection, tenant: str, user: str, limit: int = BATCH) -> int:
    """Remove an erased user's name from so many records; usage and cost stay.

    Returns the number of records; call again until it is 0.
    """
    batch_ids = select(c.id).where(c.tenant == tenant, c.user == user).limit(limit)
    return conn.execute(update(t.usage).where(c.id.in_(batch_ids)).values(user=None)).rowcount


def older(conn: Connection, before: float) -> int:
    """Remove a batch of records created before `before`; return their number.

    Call again until it is 0. Only looks at the oldest rows by id: rows are written in order of
    time, except for the duration of a request.
    """
    last_id = conn.execute(
        select(func.max(select(c.id).order_by(c.id).limit(BATCH).subquery().c.id))
    ).scalar()
    if last_id is None:
        return 0
    return conn.execute(delete(t.usage).where(c.id <= last_id, c.created_at < before)).rowcount
