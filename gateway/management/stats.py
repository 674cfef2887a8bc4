"""The monitors over HTTP: context use, archival growth, retrieval, edits of core memory.

They look at a bounded number of recent turns that the key may see. What concerns the whole process,
such as degraded requests and the state of the upstreams, is for its operator.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from litestar import get
from litestar.params import FromQuery

from gateway.management.context import AtDoor, ManagementRequest, translate_errors
from gateway.management.query_params import Within
from gateway.management.schemas import Json
from gateway.management.turns import count_degraded
from gateway.management.usage import visible_user
from gateway.storage import usage as table
from gateway.storage.usage import UsageFilter
from memory import VisibleScopes, iso, management
from memory.management.activity import Distribution, RecentTurn, TurnMonitor

# Looked at, unless `since` says otherwise.
DAYS = 7
DAY_SECONDS = 86_400
# Of models, keys, days.
MAX_GROUPS = 50


class ContextMonitor(msgspec.Struct):
    """How full prompts were. share: of the model's window, where that is known."""

    prompt_tokens: Distribution
    window_share: Distribution
    injected_tokens: Distribution


class ArchivalMonitor(msgspec.Struct):
    """passages: that a search may find, counted up to 100,000. added: by UTC day."""

    passages: int
    added: dict[str, int]


class RetrievalMonitor(msgspec.Struct):
    """Searches by tools and by automatic recall. hit_rate: null without a search."""

    searches: int
    hits: int
    hit_rate: float | None
    milliseconds: Distribution


class CoreMonitor(msgspec.Struct):
    """edits: of models in the turns looked at. edited: by UTC day and by who made the edits."""

    edits: int
    edits_per_turn: float | None
    edited: dict[str, dict[str, int]]


class TurnPoint(msgspec.Struct):
    """One turn, for plots."""

    created_at: str
    model: str
    prompt_tokens: int
    injected_tokens: int
    window: int | None
    searches: int
    hits: int
    search_ms: float
    core_edits: int


class Stats(msgspec.Struct, kw_only=True):
    """turns: how many recent turns the monitors look at. usage: by what the name says.

    degraded: turns whose memory was degraded, in this process, since the hour of `since`.

    process: of this process since it started, for its operator; null for others.
    """

    since: str
    turns: int
    context: ContextMonitor
    archival: ArchivalMonitor
    retrieval: RetrievalMonitor
    core: CoreMonitor
    recent: list[TurnPoint]
    degraded: int
    usage: dict[str, list[Json]]
    process: Json | None
    object: str = "stats"


@get("/stats", summary="The monitors: context use, archival growth, retrieval, core edits")
async def stats(caller: AtDoor, span: Within, user: FromQuery[str | None] = None) -> Stats:
    """Return the monitors since `since`, by default of the last seven days."""
    return await read_stats(caller, span.since, visible_user(caller, user))


async def read_stats(caller: ManagementRequest, since: float | None, user: str | None) -> Stats:
    """Return the monitors that a key may see. user: of one user alone.

    Raises Unavailable.
    """
    if since is None:
        since = time.time() - DAYS * DAY_SECONDS
    reach = VisibleScopes(caller.reach.tenant, caller.principal.only)
    monitors = await caller.read(
        management.activity.read_monitors(caller.memory, reach, since, user)
    )
    return Stats(
        since=iso(since),
        turns=monitors.turns,
        context=ContextMonitor(
            monitors.prompt_tokens, monitors.window_share, monitors.injected_tokens
        ),
        archival=ArchivalMonitor(monitors.passages, monitors.passages_by_day),
        retrieval=RetrievalMonitor(
            monitors.searches,
            monitors.hits,
            _ratio(monitors.hits, monitors.searches),
            monitors.search_ms,
        ),
        core=CoreMonitor(
            monitors.core_edits, _ratio(monitors.core_edits, monitors.turns), monitors.edits_by_day
        ),
        recent=[_point(turn) for turn in reversed(monitors.recent) if turn.explain is not None],
        degraded=count_degraded(caller, since, user),
        usage=await _usage(caller, UsageFilter(reach.tenant, user, since=since)),
        process=await _process(caller) if caller.runs_it else None,
    )


def _ratio(part: int, total: int) -> float | None:
    if total:
        return part / total
    return None


def _point(turn: RecentTurn) -> TurnPoint:
    explain = turn.explain
    assert explain is not None  # noqa: S101 - the caller leaves out those without
    turn_monitor = TurnMonitor.of(explain)
    return TurnPoint(
        iso(turn.began_at),
        explain.model,
        explain.tokens.prompt,
        explain.tokens.injected,
        explain.tokens.window,
        len(turn_monitor.search_ms),
        turn_monitor.hits,
        sum(turn_monitor.search_ms),
        turn_monitor.core_edits,
    )


async def _usage(caller: ManagementRequest, usage_filter: UsageFilter) -> dict[str, list[Json]]:
    """Return requests, tokens and cost, by model, key and day."""
    with translate_errors():
        # Include requests that have just ended.
        await caller.gateway.usage.flush()
    out = {}
    for by in ("model", "key", "day"):
        groups = await caller.read(
            table.read_groups(caller.memory.db, [by], usage_filter, None, MAX_GROUPS)
        )
        out[f"by_{by}"] = [{**group.members, **group.sums} for group in groups]
    return out


async def _process(caller: ManagementRequest) -> dict[str, Any]:
    """Return how this process fares: its memory, its upstreams, what it has lost."""
    gateway = caller.gateway
    targets = [t for name in gateway.settings.models for t in _targets(gateway, name)]
    resting = await gateway.choice.cooldowns.find(targets)
    now = time.monotonic()
    return {
        "memory_ready": gateway.memory.ready,
        "requests": dict(gateway.metrics.memory),
        "upstreams": {
            name: {
                **_health(gateway.metrics.health.get(name)),
                "resting": [
                    label
                    for label, cooldown in resting.items()
                    if label.startswith(f"{name}/") and cooldown.until > now
                ],
            }
            for name in gateway.settings.providers
        },
        "usage_records_dropped": gateway.usage.dropped_records,
    }


def _targets(gateway: Any, name: str) -> list[str]:
    """Return the labels of a configured model's targets; none where clients choose the name."""
    return [
        f"{target.provider}/{target.model or name}"
        for target in gateway.settings.models[name].targets
        if target.model or not name.endswith("*")
    ]


def _health(health: Any) -> dict[str, Any]:
    if health is None:
        return {"requests": 0, "failures": 0, "last_failure": None}
    failed_at = health.last_failed_at
    last_failure = {
        "status": health.last_status,
        "code": health.last_code,
        "at": iso(failed_at or 0),
    }
    return {
        "requests": health.requests,
        "failures": health.failures,
        "last_failure": last_failure if failed_at is not None else None,
    }


ROUTES = (stats,)
