"""Calls of tools that wait for a person, over HTTP: listed, and decided once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery

from gateway.errors import Forbidden, RequestConflict
from gateway.http.paths import segment
from gateway.management.context import (
    EVERY,
    AtDoor,
    Cursor,
    ManagementRequest,
    PageLimit,
    window,
)
from gateway.management.schemas import Page, describe_body, place_of
from memory import iso, management
from memory.management.approvals import ApprovalDecision, ApprovalStatus, StoredApproval

REASON_CHARACTERS = 1000
DECISIONS: dict[str, Literal["allowed", "denied"]] = {"allow": "allowed", "deny": "denied"}


class Approval(msgspec.Struct, kw_only=True):
    """A call that waits, or waited, for a person. arguments: JSON, without secrets."""

    id: str
    status: ApprovalStatus
    tool: str
    arguments: str
    tenant: str
    user: str | None
    agent: str
    conversation: str
    request_id: str
    created_at: str
    expires_at: str
    decided_at: str | None
    decided_by: str | None
    reason: str
    object: str = "tool_approval"


class DecisionPost(msgspec.Struct, forbid_unknown_fields=True):
    """reason: the model reads it where the call is refused."""

    decision: Literal["allow", "deny"]
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS)] = ""


def check_may_approve(caller: ManagementRequest) -> None:
    """Raise Forbidden for a key that does not decide on calls."""
    if not (caller.principal.approve or caller.runs_it):
        raise Forbidden(
            "Only admin keys and keys with `approve = true` decide on calls of tools. Ask the "
            "operator.",
            code="approve_key_needed",
        )


def reach_of(caller: ManagementRequest) -> str | None:
    """Return the tenant whose approvals a request means; None for all."""
    if caller.tenant == EVERY:
        return None
    return caller.tenant


def approval_object(row: StoredApproval) -> Approval:
    """Return an approval as the API shows it."""
    members = msgspec.structs.asdict(row)
    times = {name: iso(members[name]) for name in ("created_at", "expires_at")}
    decided = None
    if row.decided_at is not None:
        decided = iso(row.decided_at)
    return Approval(**{**members, **times, "decided_at": decided})


@get("/tool-approvals", summary="Calls of tools that wait for a person, newest first")
async def approvals(
    caller: AtDoor,
    status: FromQuery[ApprovalStatus | None] = None,
    cursor: Cursor = None,
    limit: PageLimit = 50,
) -> Page[Approval]:
    check_may_approve(caller)
    after = place_of(cursor, tuple[float, str])
    rows = await caller.read(
        management.approvals.list_approvals(
            caller.memory, reach_of(caller), status, after, limit + 1
        )
    )
    page, next_cursor = window(
        rows, limit, lambda r: (r.created_at, r.id), lambda r: len(r.arguments)
    )
    return Page([approval_object(row) for row in page], next_cursor)


@post(
    "/tool-approvals/{ident:str}",
    status_code=200,
    summary="Allow or refuse a call that waits",
    operation_class=describe_body(DecisionPost),
)
async def decide(caller: AtDoor, ident: FromPath[str]) -> Approval:
    check_may_approve(caller)
    decision = await caller.parse_body(DecisionPost)
    return await decide_call(caller, segment(ident), decision)


async def decide_call(caller: ManagementRequest, ident: str, sent: DecisionPost) -> Approval:
    """Decide on a call that waits. Raises ResourceNotFound, RequestConflict."""
    decision = ApprovalDecision(DECISIONS[sent.decision], sent.reason, caller.principal.key)
    row, counts = await caller.write(
        management.approvals.decide_call(caller.memory, ident, reach_of(caller), decision)
    )
    if not counts:
        raise RequestConflict(
            f"This call is {row.status} already: a call is decided once. Nothing was changed.",
            code="already_decided",
        )
    return approval_object(row)


ROUTES = (approvals, decide)
