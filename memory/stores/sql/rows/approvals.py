"""Calls of tools that wait for a person: asked for, decided once, expired.

A row is pending while it is undecided, its time is not over, and the turn that waits renews it. So
nobody decides on a call that no process would run any more.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    delete,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from memory.errors import NotFound
from memory.ids import clock, new_id
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.scopes import UserName

ApprovalStatus = Literal["pending", "allowed", "denied", "expired", "cancelled"]
# That a turn may be silent before nobody is taken to wait.
ALIVE_SECONDS = 15.0
# Rows a transaction.
RECORDS = 1000

a = t.tool_approvals.c


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A call that is to wait. arguments: without secrets. seconds: for which it waits."""

    tenant: str
    user: str | None
    agent: str
    conversation: str
    request_id: str
    tool: str
    arguments: str
    seconds: float


class StoredApproval(msgspec.Struct, frozen=True):
    """A row. Times are Unix times."""

    id: str
    status: ApprovalStatus
    tenant: str
    user: str | None
    agent: str
    conversation: str
    request_id: str
    tool: str
    arguments: str
    reason: str
    created_at: float
    expires_at: float
    decided_at: float | None
    decided_by: str | None


class ApprovalDecision(msgspec.Struct, frozen=True):
    """What a person decides. by: the key of their request."""

    status: Literal["allowed", "denied"]
    reason: str
    by: str


def create(conn: Connection, request: ApprovalRequest) -> StoredApproval:
    """Write that a call waits."""
    now = clock.now()
    row = msgspec.structs.asdict(request)
    seconds = row.pop("seconds")
    approval = StoredApproval(
        id=new_id("appr"),
        status="pending",
        reason="",
        created_at=now,
        expires_at=now + seconds,
        decided_at=None,
        decided_by=None,
        **row,
    )
    alive_until = min(now + ALIVE_SECONDS, now + seconds)
    conn.execute(
        insert(t.tool_approvals).values(**msgspec.structs.asdict(approval), alive_until=alive_until)
    )
    return approval


def find(conn: Connection, ident: str, tenant: str | None = None) -> StoredApproval:
    """Return an approval; tenant: None for any. Raises NotFound."""
    query = select(t.tool_approvals).where(a.id == ident)
    if tenant is not None:
        query = query.where(a.tenant == tenant)
    row = conn.execute(query).first()
    if row is None:
        raise NotFound(f"there is no approval {ident[:64]!r}")
    return _from_row(row)


def renew(conn: Connection, ident: str) -> None:
    """Note that a turn still waits."""
    alive_until = clock.now() + ALIVE_SECONDS
    conn.execute(
        update(t.tool_approvals)
        .where(a.id == ident, a.status == "pending")
        .values(alive_until=alive_until)
    )


def decide(
    conn: Connection, ident: str, tenant: str | None, decision: ApprovalDecision
) -> tuple[StoredApproval, bool]:
    """Decide on a call that waits.

    Returns the approval, and whether this decision is the one that counts. Raises NotFound.
    """
    now = clock.now()
    approval = find(conn, ident, tenant)
    decided = conn.execute(
        update(t.tool_approvals)
        .where(a.id == ident, _waits(now))
        .values(
            status=decision.status, reason=decision.reason, decided_by=decision.by, decided_at=now
        )
    ).rowcount
    return (find(conn, approval.id) if decided else approval), bool(decided)


def end(conn: Connection, ident: str, status: ApprovalStatus) -> StoredApproval:
    """End the wait for a decision, unless there is one; return the approval."""
    conn.execute(
        update(t.tool_approvals)
        .where(a.id == ident, a.status == "pending")
        .values(status=status, alive_until=clock.now())
    )
    return find(conn, ident)


def list_page(
    conn: Connection,
    tenant: str | None,
    status: str | None,
    after: tuple[float, str] | None,
    limit: int,
) -> list[StoredApproval]:
    """List approvals, newest first, behind a place. tenant, status: None for all."""
    now = clock.now()
    query = select(t.tool_approvals).order_by(a.created_at.desc(), a.id.desc()).limit(limit)
    if tenant is not None:
        query = query.where(a.tenant == tenant)
    if status == "pending":
        query = query.where(_waits(now))
    elif status == "expired":
        query = query.where(or_(a.status == status, and_(a.status == "pending", ~_waits(now))))
    elif status is not None:
        query = query.where(a.status == status)
    if after is not None:
        query = query.where(tuple_(a.created_at, a.id) < tuple_(*map(literal, after)))
    return [_from_row(row) for row in conn.execute(query)]


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give a user's approvals to another name."""
    is_owned = (a.tenant == source[0]) & (a.user == source[1])
    conn.execute(update(t.tool_approvals).where(is_owned).values(tenant=target[0], user=target[1]))


def remove(conn: Connection, user_name: UserName) -> None:
    """Remove the approvals of a user who is erased."""
    conn.execute(delete(t.tool_approvals).where(a.tenant == user_name[0], a.user == user_name[1]))


def expire(conn: Connection, before: float) -> int:
    """Remove so many approvals that were asked for before a time.

    Returns their number; call again until it is 0.
    """
    expired_ids = select(a.id).where(a.created_at < before).limit(RECORDS)
    return conn.execute(delete(t.tool_approvals).where(a.id.in_(expired_ids))).rowcount


def _waits(now: float) -> ColumnElement[bool]:
    return and_(a.status == "pending", a.expires_at > now, a.alive_until > now)


def _from_row(row: Any) -> StoredApproval:
    members = dict(row._mapping)
    alive_until = members.pop("alive_until")
    now = clock.now()
    if row.status == "pending" and min(alive_until, row.expires_at) <= now:
        members["status"] = "expired"
    return StoredApproval(**members)
