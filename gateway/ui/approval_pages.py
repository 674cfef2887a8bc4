"""Calls of tools that wait for a person: shown as they come, allowed or refused with a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Stream, Template

from gateway.errors import RequestConflict
from gateway.management import approvals as api
from gateway.management.approvals import Approval
from gateway.management.context import EVERY
from gateway.ui.form_request import FormRequest, path_segment
from gateway.ui.live import EVENT_STREAM, Feeds, event, watch
from gateway.ui.texts import link
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit, Visitor, go_to
from memory import management

MAX_WAITING = 100
MAX_DECIDED = 20
# As the state that a page shows.
NOTHING_WAITS = "none"


def _look_everywhere(visitor: Visitor) -> None:
    """Show an admin who names no tenant the calls of all of them. Raises Forbidden."""
    api.check_may_approve(visitor.caller)
    if visitor.caller.principal.admin and visitor.caller.asked_tenant is None:
        visitor.caller.tenant = EVERY


async def _list_waiting(visitor: Visitor) -> list[Approval]:
    pending_calls = await api.approvals.fn(visitor.caller, "pending", None, MAX_WAITING)
    return list(pending_calls.data)


@get("/approvals")
async def approvals_page(visitor: AtVisit) -> Template:
    _look_everywhere(visitor)
    waiting_calls = await _list_waiting(visitor)
    newest_calls = await api.approvals.fn(visitor.caller, None, None, MAX_WAITING)
    decided = [call for call in newest_calls.data if call.status != "pending"]
    return visitor.page(
        "approvals.html",
        calls=waiting_calls,
        waiting=len(waiting_calls),
        decided=decided[:MAX_DECIDED],
        seen=_name_state(waiting_calls),
        tenant=tenant_link(visitor),
    )


def _name_state(waiting_calls: list[Approval]) -> str:
    """Return what a page that shows these calls knows: their ids."""
    return ",".join(call.id for call in waiting_calls) or NOTHING_WAITS


@get("/approval")
async def approval_card(visitor: AtVisit, id: FromQuery[str]) -> Template | Redirect:
    """Return one call: a part of the page, which asks for it when its wait has ended."""
    _look_everywhere(visitor)
    if not visitor.is_fragment:
        return go_to(link("/approvals", tenant=tenant_link(visitor)))
    return await _card(visitor, id)


async def _card(visitor: Visitor, ident: str, fault: str = "") -> Template:
    caller = visitor.caller
    row = await caller.read(
        management.approvals.find_approval(caller.memory, ident, api.reach_of(caller))
    )
    call = api.approval_object(row)
    context: dict[str, Any] = {"call": call, "fault": fault, "tenant": tenant_link(visitor)}
    return visitor.page("parts/approval.html", **context)


@post("/approval", status_code=200)
async def decide(visitor: AtVisit) -> Template | Redirect:
    """Allow or refuse a call; of one that is decided already the page says so."""
    _look_everywhere(visitor)
    ident = visitor.field("id")
    body = {"decision": visitor.field("decision"), "reason": visitor.field("reason").strip()}
    fault = ""
    try:
        await api.decide.fn(FormRequest(visitor, body), path_segment(ident))
    except RequestConflict as e:
        if not visitor.is_fragment:
            raise
        fault = e.message
    if visitor.is_fragment:
        return await _card(visitor, ident, fault)
    return go_to(link("/approvals", tenant=tenant_link(visitor)))


@get("/approvals/events")
async def approval_events(
    visitor: AtVisit, feeds: Feeds, seen: FromQuery[str] = NOTHING_WAITS
) -> Stream:
    """Send each call as it begins to wait, which ended, and how many wait.

    seen: what the page shows. A browser that reconnects names what it has got since.
    """
    _look_everywhere(visitor)
    headers = visitor.caller.request.headers
    known_ids = set((headers.get("last-event-id") or seen).split(","))

    async def changes() -> AsyncIterator[bytes]:
        listed_ids = known_ids
        async for _ in watch(visitor):
            waiting_calls = await _list_waiting(visitor)
            present = {call.id for call in waiting_calls} or {NOTHING_WAITS}
            yield (
                _render_changes(visitor, waiting_calls, listed_ids)
                if present != listed_ids
                else b""
            )
            listed_ids = present

    return Stream(feeds.open(visitor.session, changes()), media_type=EVENT_STREAM)


def _render_changes(visitor: Visitor, waiting_calls: list[Approval], listed_ids: set[str]) -> bytes:
    """Return the events that bring a page from the calls that it lists to those that wait."""
    engine = visitor.caller.request.app.template_engine
    assert engine is not None  # noqa: S101 - the dashboard's pages are made by it
    card, count = (
        engine.get_template(f"parts/{name}.html") for name in ("approval", "approvals-waiting")
    )
    state = _name_state(waiting_calls)
    tenant = tenant_link(visitor)
    ended_ids = sorted(listed_ids - {call.id for call in waiting_calls} - {NOTHING_WAITS})
    events = [event(f"ended-{ident}", "", state) for ident in ended_ids if ident.isidentifier()]
    for call in reversed(waiting_calls):
        if call.id not in listed_ids:
            html = card.render(call=call, fault="", visitor=visitor, tenant=tenant)
            events.append(event("approval", html, state))
    events.append(event("waiting", count.render(waiting=len(waiting_calls)), state))
    return b"".join(events)


ROUTES = (approvals_page, approval_card, decide, approval_events)
