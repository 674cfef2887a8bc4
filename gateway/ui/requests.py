"""Turns: a live feed of them, and one request with everything that memory did to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import msgspec
from litestar import get
from litestar.params import FromQuery
from litestar.response import Redirect, Stream, Template

from gateway.errors import ResourceNotFound
from gateway.management.context import STORE_OPTIONAL, translate_errors
from gateway.management.conversations import explain as explain_api
from gateway.management.turns import (
    list_degraded,
    list_running,
    read_turns,
    reasons_of,
    without_record,
)
from gateway.storage import usage as table
from gateway.storage.usage import UsageFilter
from gateway.telemetry.degraded import DegradedTurn
from gateway.ui.charts import BarPart, stack
from gateway.ui.conversations import reach_of
from gateway.ui.failures import FailedRequest, list_failed
from gateway.ui.live import EVENT_STREAM, Feeds, event, watch
from gateway.ui.people import summarise_user
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, AtVisit, Visitor, go_to
from memory import management
from memory.management.activity import ExplainSummary, RecentTurn, explained_turn, split_core

FEED_SECONDS = 24 * 3600.0
FEED_TURNS = 30
# A turn that began so long ago may end, and be recorded, only now.
OVERLAP_SECONDS = 900.0
# See `summarise_user`.
WITHOUT_STORE = {"counts": None, "policy": "", "modes": ()}
# Before its turn begins, at most, a request has begun.
USAGE_SECONDS = 60.0


@get("/feed", opt={STORE_OPTIONAL: True})
async def feed_page(visitor: AtVisit) -> Template:
    turns, outage = await _ended(visitor, time.time() - FEED_SECONDS)
    turns.sort(key=lambda turn: not turn.failed)
    running_calls = list_running(visitor.caller)
    return visitor.page("feed.html", turns=turns, outage=outage, running_calls=running_calls)


async def _ended(visitor: Visitor, since: float) -> tuple[list[ShownTurn], str]:
    """Return the turns that ended last, of those that began after a Unix time.

    Also returns why those that the store holds are missing, "" if they are not.
    """
    caller = visitor.caller
    turn_rows, outage = await read_turns(
        caller,
        management.activity.list_ended_turns(caller.memory, reach_of(visitor), since, FEED_TURNS),
    )
    turns = _with_degraded(turn_rows, list_degraded(caller, since))
    turns = _with_failed(turns, await list_failed(visitor, since))
    return sorted(turns, key=attrgetter("end_mark"), reverse=True)[:FEED_TURNS], outage


def _with_failed(
    turns: list[ShownTurn], failed_requests: Sequence[FailedRequest]
) -> list[ShownTurn]:
    """Return the turns, and the requests that failed before they became one."""
    by_request = {request.request_id: request for request in failed_requests}
    out = []
    for turn in turns:
        if turn.explain:
            request_id = turn.explain.request_id
        else:
            request_id = turn.mark
        failed_request = by_request.pop(request_id, None)
        out.append(
            turn
            if failed_request is None
            else replace(turn, failed=failed_request.what, advice=failed_request.advice)
        )
    for request in by_request.values():
        turn_mark = f"{int(request.ended_at * 1_000_000):016x}-{request.request_id}"
        turn_identity = (
            request.request_id,
            turn_mark,
            request.tenant,
            request.user,
            request.ended_at,
        )
        model = request.model
        failure = request.what
        advice = request.advice
        out.append(ShownTurn(*turn_identity, 1, None, model=model, failed=failure, advice=advice))
    return out


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn in a list. degraded: the reason, "" if it was not. model: if not recorded.

    failed, advice: what went wrong with the request and what to do; "" if nothing did.
    """

    mark: str
    end_mark: str
    tenant: str
    user: str | None
    began_at: float
    attempts: int
    explain: ExplainSummary | None
    degraded: str = ""
    model: str = ""
    failed: str = ""
    advice: str = ""


def _with_degraded(
    recorded: Sequence[RecentTurn], degraded: Sequence[DegradedTurn]
) -> list[ShownTurn]:
    """Return the recorded turns with their reasons, and the turns that reached no store."""
    reasons = reasons_of(degraded)
    out = []
    for t in recorded:
        why = ""
        if t.explain:
            why = reasons.get(t.explain.request_id, "")
        head = (t.mark, t.end_mark, t.tenant, t.user, t.began_at)
        out.append(ShownTurn(*head, t.attempts, t.explain, why))
    for d in without_record(degraded, recorded):
        head = (d.mark, d.end_mark, d.tenant, d.user, d.began_at)
        out.append(ShownTurn(*head, 1, None, d.reason, d.model))
    return out


@get("/feed/events", opt={STORE_OPTIONAL: True})
async def feed_events(visitor: AtVisit, feeds: Feeds, seen: FromQuery[str] = "") -> Stream:
    """Send each turn when it is recorded, and the tools that run, as parts of the feed's page.

    seen: the turns that the page already shows, so that none is missed. A browser that reconnects
    names the last one that it got.
    """
    engine = visitor.caller.request.app.template_engine
    assert engine is not None  # noqa: S101 - the dashboard's pages are made by it
    template = engine.get_template("parts/turn.html")
    notice = engine.get_template("parts/outage.html")
    calls = engine.get_template("parts/running-calls.html")

    async def turns() -> AsyncIterator[bytes]:
        shown_marks = set(seen.split(","))
        shown_outage = ""
        # What the page shows may have ended before the feed began.
        shown_calls: str | None = None
        last_event_id = visitor.caller.request.headers.get("last-event-id", "")
        async for _ in watch(visitor):
            ended_turns, outage = await _ended(visitor, time.time() - OVERLAP_SECONDS)
            if outage != shown_outage:
                shown_outage = outage
                yield event("outage", notice.render(outage=outage))
            running_calls = calls.render(running_calls=list_running(visitor.caller))
            if running_calls != shown_calls:
                shown_calls = running_calls
                yield event("running", running_calls)
            new_turns = [
                t
                for t in reversed(ended_turns)
                if t.mark not in shown_marks and t.end_mark > last_event_id
            ]
            shown_marks = (shown_marks if new_turns else set()) | {t.mark for t in ended_turns}
            yield b"".join(
                event("turn", template.render(turn=turn, visitor=visitor), turn.end_mark)
                for turn in new_turns
            )

    return Stream(feeds.open(visitor.session, turns()), media_type=EVENT_STREAM)


@get("/user/turns", opt={STORE_OPTIONAL: True})
async def turns_page(subject: AboutUser) -> Template:
    context = subject.context
    since = time.time() - 30 * FEED_SECONDS
    visitor = subject.visitor
    turn_rows, outage = await read_turns(
        visitor.caller,
        management.activity.list_turns(
            context.memory, reach_of(visitor), since, FEED_TURNS, context.user
        ),
    )
    turns = _with_degraded(turn_rows, list_degraded(visitor.caller, since, context.user))
    turns = _with_failed(turns, await list_failed(visitor, since, context.user))
    turns = sorted(turns, key=attrgetter("began_at"), reverse=True)[:FEED_TURNS]
    if not outage:
        head = await summarise_user(subject)
    else:
        head = WITHOUT_STORE
    return subject.page("turns.html", turns=turns, outage=outage, **head)


@dataclass(frozen=True, slots=True)
class ExplainedRequest:
    """One request: its explain record, its books, what was said, and the bar of its window.

    tenant: the one that its links name; empty where the key has one alone.
    """

    record: dict[str, Any]
    summary: ExplainSummary
    usage: dict[str, Any] | None
    said: list[Any]
    bar: list[BarPart]
    core: str
    compacted: str
    tenant: str


@get("/request")
async def request_page(visitor: AtVisit, id: FromQuery[str]) -> Template | Redirect:
    """Show one request, by the id of its explain record or of the request itself."""
    if id.startswith("req_"):
        turn = await find_turn(visitor, id)
        if turn is None or turn.explain is None:
            raise ResourceNotFound(
                f"No turn of the request {id[:80]!r} is among the newest. A request without "
                "memory leaves none; `Why does it not remember?` says why."
            )
        tenant = ""
        if visitor.caller.principal.admin:
            tenant = turn.tenant
        return go_to(link("/request", id=turn.explain.id, tenant=tenant))
    record = await explain_api.fn(visitor.caller, id)
    return visitor.page("request.html", asked=await _explain(visitor, record))


async def find_turn(visitor: Visitor, request_id: str) -> RecentTurn | None:
    """Return the turn of a request; None if it is not among the newest."""
    caller = visitor.caller
    since = time.time() - 7 * FEED_SECONDS
    turns = await caller.read(
        management.activity.list_turns(
            caller.memory, reach_of(visitor), since, management.activity.MAX_TURNS
        )
    )
    return next((t for t in turns if t.explain and t.explain.request_id == request_id), None)


async def read_usage(visitor: Visitor, usage_filter: UsageFilter) -> list[dict[str, Any]]:
    """Return the newest usage record, if there is one, also of a request that has just ended."""
    caller = visitor.caller
    with translate_errors():
        await caller.gateway.usage.flush()
    return await caller.read(table.read_records(caller.memory.db, usage_filter, None, 1))


async def _explain(visitor: Visitor, record: dict[str, Any]) -> ExplainedRequest:
    caller = visitor.caller
    key, began_at = explained_turn(record["id"])
    summary = msgspec.convert(record, ExplainSummary)
    spoken_messages = await caller.read(
        management.activity.list_turn_messages(caller.memory, caller.reach, key)
    )
    core, compacted = split_core(record["injected"]["core"])
    usage_filter = UsageFilter(
        caller.reach.tenant,
        since=began_at - USAGE_SECONDS,
        until=time.time(),
        request_id=summary.request_id,
    )
    usage_rows = await read_usage(visitor, usage_filter)
    if usage_rows and caller.principal.admin:
        tenant = usage_rows[0]["tenant"]
    else:
        tenant = caller.asked_tenant
    return ExplainedRequest(
        record,
        summary,
        usage_rows[0] if usage_rows else None,
        spoken_messages,
        _window_bar(visitor, record, summary, core, compacted),
        core,
        compacted,
        tenant or "",
    )


def _window_bar(
    visitor: Visitor, record: dict[str, Any], summary: ExplainSummary, core: str, compacted: str
) -> list[BarPart]:
    """Return what filled the context window, in estimated tokens."""
    counter = visitor.caller.memory.counter("estimate")

    def count(text: str) -> int:
        if text:
            return counter.text(text)
        return 0

    injection = record["injected"]
    tokens = summary.tokens
    blocks = count(core)
    summary_tokens = count(compacted)
    notes = count("\n".join(n["text"] for n in injection["notes"]))
    recall = count(injection["recall"])
    tools = 0
    if injection["tools"]:
        tools = max(tokens.injected - blocks - summary_tokens - notes, 0)
    added_tokens = blocks + summary_tokens + notes + recall + tools
    total_tokens = tokens.prompt_estimate + (0 if tokens.counted else added_tokens)
    app_tools = min(tokens.client_tools, max(total_tokens - added_tokens - tokens.system, 0))
    parts = {
        "system": ("Your app's system text", tokens.system),
        "core": ("Core memory", blocks),
        "summary": ("Summary", summary_tokens),
        "app-tools": ("Your app's tools", app_tools),
        "history": (
            "Your app's messages",
            max(total_tokens - added_tokens - tokens.system - app_tools, 0),
        ),
        "recall": ("Notes and recall", notes + recall),
        "tools": ("Memory tools", tools),
        "free": ("Free", max((tokens.window or 0) - total_tokens, 0)),
    }
    return stack(parts, tokens.window or total_tokens)


ROUTES = (feed_page, feed_events, turns_page, request_page)
