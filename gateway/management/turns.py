"""Recent turns over HTTP: who, which model, what the memory did."""

from __future__ import annotations

import time

import msgspec
from litestar import get
from litestar.params import FromQuery

from gateway.management.context import AtDoor, PageLimit
from gateway.management.query_params import Within
from gateway.management.schemas import Page
from gateway.management.usage import visible_user
from memory import VisibleScopes, iso, management
from memory.management.activity import RecentTurn, calls_of

LATELY_SECONDS = 86_400.0


class RanCall(msgspec.Struct):
    """A memory tool that ran. outcome: `ok`, `empty` (a search without a hit) or `error`."""

    name: str
    outcome: str
    ms: float


class ListedTurn(msgspec.Struct):
    """One turn. explain: the id of its record; null where that is too long for a list."""

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
    object: str = "turn"


@get("/turns", summary="Recent turns with memory, newest first")
async def turns(
    caller: AtDoor, span: Within, user: FromQuery[str | None] = None, limit: PageLimit = 50
) -> Page[ListedTurn]:
    """List turns that began since `since`, by default of the last day."""
    since = span.since if span.since is not None else time.time() - LATELY_SECONDS
    only = caller.principal.only
    whose = visible_user(caller, user) if user is not None or only is None else None
    found = await caller.read(
        management.activity.list_turns(
            caller.memory, VisibleScopes(caller.reach.tenant, only), since, limit, whose
        )
    )
    return Page([_to_schema(turn) for turn in found])


def _to_schema(turn: RecentTurn) -> ListedTurn:
    explain = turn.explain
    return ListedTurn(
        f"{turn.key:016x}",
        turn.tenant,
        turn.user,
        iso(turn.began_at),
        iso(turn.ended_at),
        explain.id if explain else None,
        explain.request_id if explain else None,
        explain.conversation if explain else None,
        explain.model if explain else None,
        explain.tokens.injected if explain else 0,
        [RanCall(c.name, c.outcome, c.milliseconds) for c in calls_of(explain)] if explain else [],
    )


ROUTES = (turns,)
