"""Calls of tools that wait for a person, from outside: listed, decided, waited for."""

from __future__ import annotations

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import approvals as rows
from memory.stores.sql.rows.approvals import (
    ALIVE_SECONDS,
    ApprovalDecision,
    ApprovalRequest,
    ApprovalStatus,
    StoredApproval,
)

__all__ = [
    "ALIVE_SECONDS",
    "ApprovalDecision",
    "ApprovalRequest",
    "ApprovalStatus",
    "StoredApproval",
    "ask_person",
    "decide_call",
    "end_wait",
    "find_approval",
    "list_approvals",
    "renew_wait",
]


async def ask_person(memory: Memory, request: ApprovalRequest) -> StoredApproval:
    """Write that a call waits for a person. Raises StoreUnavailable."""
    return await memory.db.write(lambda conn: rows.create(conn, request), lock=NOTHING)


async def find_approval(memory: Memory, ident: str, tenant: str | None = None) -> StoredApproval:
    """Return an approval; tenant: None for any. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, ident, tenant))


async def list_approvals(
    memory: Memory,
    tenant: str | None,
    status: str | None,
    after: tuple[float, str] | None,
    limit: int,
) -> list[StoredApproval]:
    """List approvals, newest first, behind a place. Raises StoreUnavailable.

    tenant, status: None for all.
    """
    return await read(memory, lambda conn: rows.list_page(conn, tenant, status, after, limit))


async def decide_call(
    memory: Memory, ident: str, tenant: str | None, decision: ApprovalDecision
) -> tuple[StoredApproval, bool]:
    """Decide on a call that waits.

    Returns the approval, and whether this decision is the one that counts. Raises NotFound,
    StoreUnavailable.
    """
    return await memory.db.write(
        lambda conn: rows.decide(conn, ident, tenant, decision), lock=NOTHING
    )


async def renew_wait(memory: Memory, ident: str) -> None:
    """Note that a turn still waits for a decision. Raises StoreUnavailable."""
    await memory.db.write(lambda conn: rows.renew(conn, ident), lock=NOTHING)


async def end_wait(memory: Memory, ident: str, status: ApprovalStatus) -> StoredApproval:
    """End the wait for a decision, unless there is one already. Raises StoreUnavailable."""
    return await memory.db.write(lambda conn: rows.end(conn, ident, status), lock=NOTHING)
