"""Recent turns over HTTP: who, which model, what the memory did."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence

import msgspec
from litestar import get
from litestar.params import FromQuery

from gateway.errors import StoreDown
from gateway.management.context import STORE_OPTIONAL, AtDoor, ManagementRequest, PageLimit
from gateway.management.query_params import Within
from gateway.management.usage import visible_user
from gateway.telemetry.degraded import DegradedTurn
from gateway.tools.running_call import RunningCall
from memory import VisibleScopes, iso, management, shown_owner
from memory.management.activity import RecentTurn, calls_of

LATELY_SECONDS = 86_400.0


class RanCall(msgspec.Struct):
    """A memory tool that ran. outcome: `ok`, `empty` (a search without a hit) or `error`."""

    name: str
    outcome: str
    ms: float


class ListedTurn(msgspec.Struct):
    """One turn. explain: the id of its record; null where it has none, or a too long one.

    status: `ok` or `degraded`; reason: what of the memory was missing then, else null.
    """

    id: str
    tenant: str
    user: str | None
    created_at: str
    ended_at: str
    explain: str | None
    request_id: str | None
    conversation: str | None
    model: str | None
    injected_tokens: int
    calls: list[RanCall]
    status: str = "ok"
    reason: str | None = None
    object: str = "turn"


def list_degraded(
    caller: ManagementRequest, since: float, user: str | None = None
) -> Sequence[DegradedTurn]:
    """Return the degraded turns that this process holds and the caller may see, newest first."""
    tenant = caller.reach.tenant
    only = caller.principal.only

    def may_see(turn: DegradedTurn) -> bool:
        return (
            tenant in (None, turn.tenant)
            and (only is None or turn.user in only)
            and user in (None, turn.user)
        )

    return caller.gateway.metrics.degraded.list_since(since, may_see)


def list_running(caller: ManagementRequest) -> list[RunningCall]:
    """Return the calls of tools that run in this process, which the caller may see, oldest first.

    Those of other processes are known once their turn has ended.
    """
    tenant = caller.reach.tenant
    only = caller.principal.only
    calls = [
        call
        for call in caller.gateway.toolbox.running_calls
        if tenant in (None, call.caller.tenant) and (only is None or call.caller.user in only)
    ]
    return sorted(calls, key=lambda call: call.timing.started_at)


def count_degraded(caller: ManagementRequest, since: float, user: str | None = None) -> int:
    """Return how many degraded turns this process had of those that the caller may see."""
    users = caller.principal.only if user is None else [user]
    return caller.gateway.metrics.degraded.count_since(since, caller.reach.tenant, users)


def reasons_of(turns: Sequence[DegradedTurn]) -> dict[str, str]:
    """Return why each was degraded, by the id of its request."""
    return {turn.request_id: turn.reason for turn in turns}


def without_record(
    degraded: Sequence[DegradedTurn], recorded: Sequence[RecentTurn]
) -> list[DegradedTurn]:
    """Return the degraded turns that the memory has not recorded."""
    recorded_ids = {turn.explain.request_id for turn in recorded if turn.explain is not None}
    return [turn for turn in degraded if turn.request_id not in recorded_ids]


class TurnPage(msgspec.Struct):
    """Turns. warning: why those that the store holds are missing, else null."""

    data: list[ListedTurn]
    next_cursor: str | None = None
    object: str = "list"
    warning: str | None = None


async def read_turns(
    caller: ManagementRequest, work: Awaitable[list[RecentTurn]]
) -> tuple[list[RecentTurn], str]:
    """Return recorded turns; none, and why, while the store is down."""
    try:
        return await caller.read(work), ""
    except StoreDown as e:
        return [], e.message


@get("/turns", summary="Recent turns with memory, newest first", opt={STORE_OPTIONAL: True})
async def turns(
    caller: AtDoor, span: Within, user: FromQuery[str | None] = None, limit: PageLimit = 50
) -> TurnPage:
    """List turns that began since `since`, by default of the last day.

    Those that the memory could not record are known to this process alone, the newest of them. They
    are listed while the store is down too, with a warning.
    """
    if span.since is not None:
        since = span.since
    else:
        since = time.time() - LATELY_SECONDS
    only = caller.principal.only
    visible_name = None
    if user is not None or only is None:
        visible_name = visible_user(caller, user)
    recorded_turns, warning = await read_turns(
        caller,
        management.activity.list_turns(
            caller.memory, VisibleScopes(caller.reach.tenant, only), since, limit, visible_name
        ),
    )
    degraded = list_degraded(caller, since, visible_name)
    reasons = reasons_of(degraded)
    turn_objects = [_to_schema(turn, reasons) for turn in recorded_turns]
    turn_objects += [_unrecorded(turn) for turn in without_record(degraded, recorded_turns)]
    newest_turns = sorted(turn_objects, key=lambda turn: turn.created_at, reverse=True)[:limit]
    return TurnPage(newest_turns, warning=warning or None)


def _unrecorded(turn: DegradedTurn) -> ListedTurn:
    return ListedTurn(
        turn.request_id,
        turn.tenant,
        shown_owner(turn.user),
        iso(turn.began_at),
        iso(turn.ended_at),
        None,
        turn.request_id,
        None,
        turn.model,
        0,
        [],
        "degraded",
        turn.reason,
    )


def _to_schema(turn: RecentTurn, reasons: Mapping[str, str]) -> ListedTurn:
    explain = turn.explain
    reason = None
    if explain:
        reason = reasons.get(explain.request_id)
    return ListedTurn(
        f"{turn.key:016x}",
        turn.tenant,
        shown_owner(turn.user),
        iso(turn.began_at),
        iso(turn.ended_at),
        explain.id if explain else None,
        explain.request_id if explain else None,
        explain.conversation if explain else None,
        explain.model if explain else None,
        explain.tokens.injected if explain else 0,
        [RanCall(c.name, c.outcome, c.milliseconds) for c in calls_of(explain)] if explain else [],
        "ok" if reason is None else "degraded",
        reason,
    )


ROUTES = (turns,)
