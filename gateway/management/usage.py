"""Usage and cost of requests over HTTP, summed by group or request by request."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from gateway.errors import BadRequest, Forbidden
from gateway.management.context import (
    AtDoor,
    Cursor,
    ManagementRequest,
    PageLimit,
    check_name,
    translate_errors,
    window,
)
from gateway.management.query_params import Within
from gateway.management.schemas import Page, place_of
from gateway.storage import usage as table
from gateway.storage.usage import MEMBERS, SUMMED, UsageFilter
from memory import iso

Only = FromQuery[str | None]
GroupBy = Annotated[
    str,
    QueryParameter(
        description=f"any of {', '.join(MEMBERS)}, with commas between; "
        "or request, for single requests"
    ),
]
DAYS = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
ROW_KEY = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class UsageGroup(msgspec.Struct, kw_only=True):
    """tenant to day: only those asked for; day is a UTC date. agent: null where none was called.

    cost_usd: of the requests whose price is known, null when none is. unpriced_requests: those
    whose price is unknown. latency_ms, first_token_ms: averages.
    """

    tenant: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    user: str | UnsetType | None = UNSET
    model: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    agent: str | UnsetType | None = UNSET
    day: str | UnsetType = UNSET
    requests: int
    errors: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    hidden_input_tokens: int
    hidden_output_tokens: int
    cost_usd: float | None
    unpriced_requests: int
    estimated_requests: int
    latency_ms: float
    first_token_ms: float | None
    object: str = "usage"


class UsageRequest(msgspec.Struct, kw_only=True):
    """user is null where nobody was named, or was erased since; agent where none was called.

    parent: the request whose agent asked for this one, null where a client did. cost_usd is null
    where a price is unknown. estimated: some counts are estimates.
    """

    request_id: str
    created_at: str
    tenant: str
    user: str | None
    key: str
    model: str
    target: str
    path: str
    mode: str
    attempts: int
    rounds: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    hidden_input_tokens: int
    hidden_output_tokens: int
    estimated: bool
    cost_usd: float | None
    latency_ms: float
    first_token_ms: float | None
    status: int
    code: str | None
    agent: str | None
    parent: str | None
    object: str = "usage.request"


async def parse_filter(
    caller: AtDoor, span: Within, user: Only = None, key: Only = None, model: Only = None
) -> UsageFilter:
    """Return which requests are wanted. Raises BadRequest, Forbidden."""
    return UsageFilter(
        caller.reach.tenant, visible_user(caller, user), key, model, span.since, span.until
    )


@get("/usage", summary="What requests used and cost, by groups or one by one")
async def usage(
    caller: AtDoor,
    wanted: NamedDependency[UsageFilter],
    group_by: GroupBy = "day",
    cursor: Cursor = None,
    limit: PageLimit = 50,
) -> Page[UsageGroup | UsageRequest]:
    by = [name.strip() for name in group_by.split(",")]
    is_by_request = by == ["request"]
    if not is_by_request and not set(by) <= set(MEMBERS):
        raise BadRequest(
            f"`group_by` is {group_by[:80]!r}: give any of {', '.join(MEMBERS)} with commas "
            "between, or request.",
            param="group_by",
        )
    with translate_errors():
        # Include requests that have just ended.
        await caller.gateway.usage.flush()
    if is_by_request:
        return await _requests(caller, wanted, cursor, limit)
    by = list(dict.fromkeys(by))
    kind: Any = GenericAlias(tuple, tuple(DAYS if name == "day" else str for name in by))
    after = place_of(cursor, kind)
    page_groups, next_cursor = window(
        await caller.read(table.read_groups(caller.memory.db, by, wanted, after, limit + 1)),
        limit,
        lambda g: g.place,
    )
    return Page([UsageGroup(**g.members, **g.sums) for g in page_groups], next_cursor)


def visible_user(caller: ManagementRequest, user: str | None) -> str | None:
    """Return the requested user; None for all users. Raises BadRequest, Forbidden."""
    if user is None:
        if caller.principal.only is not None:
            raise Forbidden(
                "This key only sees its own users. Name one with ?user=, or use a trusted key.",
                param="user",
            )
        return None
    # As requests do.
    user = check_name(user.strip(), "user")
    if not caller.principal.may_name(user):
        raise Forbidden(
            f"This key may not reach the user {user[:64]!r}. Use one of its own users, or a "
            "trusted key.",
            param="user",
        )
    return user


async def _requests(
    caller: ManagementRequest, usage_filter: UsageFilter, cursor: str | None, limit: int
) -> Page[UsageGroup | UsageRequest]:
    before = place_of(cursor, tuple[float, ROW_KEY])
    page_records, next_cursor = window(
        await caller.read(table.read_records(caller.memory.db, usage_filter, before, limit + 1)),
        limit,
        lambda r: (r["created_at"], r["id"]),
    )
    return Page([_request(row) for row in page_records], next_cursor)


def _request(row: dict[str, Any]) -> UsageRequest:
    tokens = {f"{name}_tokens": row.pop(name) for name in SUMMED}
    cost = row.pop("cost")
    _ = row.pop("id")
    members = {**row, "created_at": iso(row["created_at"]), "agent": row["agent"] or None}
    return UsageRequest(**members, **tokens, cost_usd=cost)


ROUTES = (usage,)
