"""Responses that the provider stores: `previous_response_id`, and requests on them.

The client knows a response by the id of its first round; the provider continues from the last
round. So each stored response has a row (`gateway.storage.responses`) with both ids, its owner, and
what the client saw. A response without a row of the caller's is unknown: 404.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import msgspec

from gateway.apis.native import NativeView
from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.auth.authenticator import Headers, Principal
from gateway.chat.intake.request import TurnInput
from gateway.chat.stored import kept_responses
from gateway.chat.stored.compaction_trigger import may_ask_for_compaction
from gateway.chat.stored.kept_conversations import (
    conversation_named,
    find_conversation,
    find_thread,
)
from gateway.chat.stored.stored_names import check_references, check_stored_names
from gateway.errors import RequestConflict, ResourceNotFound, Unavailable
from gateway.http.json_thread import look_for, run_by_weight
from gateway.state import GatewayState
from gateway.storage.responses import COMMAND, StoredResponse
from gateway.wire.chat import Json, encode
from gateway.wire.item_references import tell_items
from memory import StoreUnavailable, without_spans

log = logging.getLogger("mnemogate")


async def link_response(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return a chained request as it continues at the provider, in the same conversation.

    Raises ResourceNotFound if the response is not the caller's.
    """
    if request.principal.paths is not None:
        request = await check_stored_names(gateway, request)
    if request.api is not RESPONSES:
        may_go_on = "previous_response_id" in request.body or "conversation" in request.body
        if may_go_on and request.principal.paths is not None:
            await _check_chain(gateway, request)
        return request
    thread = await find_thread(gateway, request)
    is_kept_here = thread is not None and not thread.target
    if is_kept_here or not request.route.keeps_responses:
        name = thread.id if thread is not None else ""
        return await _with_room(
            gateway, request, await kept_responses.expand(gateway, request, name)
        )
    if await _may_refer(request):
        request = await check_references(gateway, request)
        request = await _resolve_references(gateway, request)
    previous_id = request.body.get("previous_response_id")
    # Which the provider guards.
    account = gateway.keys.own and not request.uses_memory
    if not isinstance(previous_id, str) or account:
        return request
    row = await find_base(gateway, request.principal, request.user, previous_id)
    if row is None:
        return await _begin_anew(request, previous_id)
    # Though the server keeps those of today.
    if kept_responses.is_kept(row):
        return await _with_room(gateway, request, await kept_responses.expand(gateway, request))
    return await _go_on(request, row, previous_id)


async def _may_refer(request: TurnInput) -> bool:
    """Tell whether a request may name items by their ids, before it is read.

    A reference has a type or none: only a fenced key's request is read for those without.
    """
    if request.principal.paths is not None and await look_for(request.raw_body, b'"id"'):
        return True
    return await kept_responses.may_refer(request.raw_body)


async def _check_chain(gateway: GatewayState, request: TurnInput) -> None:
    """Check what a request goes on from in an API that knows no chains: its server may.

    Raises ResourceNotFound for another owner's, BadRequest, Unavailable.
    """
    principal = request.principal
    user = request.user
    body = request.body
    if isinstance(name := body.get("previous_response_id"), str):
        await find_own(gateway, principal, user, name)
    if "conversation" in body and (name := conversation_named(body)):
        await find_conversation(gateway, principal, user, name)


async def _with_room(
    gateway: GatewayState, sent_request: TurnInput, request: TurnInput
) -> TurnInput:
    """Return an expanded request, which is kept here if there is room for it.

    One that says nothing of `store`, and goes on from nothing, is served all the same and not kept.
    sent_request: as it was sent. Raises RequestConflict, Unavailable.
    """
    if request.kept_items is None:
        return request
    tenant = request.principal.tenant
    user = request.user
    size = len(sent_request.raw_body)
    try:
        await kept_responses.check_room(gateway, tenant, user, request.thread, size)
    except RequestConflict as e:
        if request.thread or request.chained or sent_request.body.get("store") is True:
            raise
        log.warning("a response is not kept: %s", e.message)
        facts = request.whole_facts
        if facts is not None and isinstance(view := facts.view, NativeView):
            facts = msgspec.structs.replace(facts, view=replace(view, stored=False))
        return msgspec.structs.replace(request, kept_items=None, whole_facts=facts)
    return request


async def find_base(
    gateway: GatewayState, principal: Principal, user: str | None, name: str
) -> StoredResponse | None:
    """Return the response that a request continues; for a command's answer the one before it.

    None if there is none before it. Raises ResourceNotFound, Unavailable.
    """
    row = await find_own(gateway, principal, user, name)
    if row.kind != COMMAND:
        return row
    base = row.echo.get("previous_response_id")
    if base:
        return await find_own(gateway, principal, user, base)
    return None


async def _begin_anew(request: TurnInput, previous_id: str) -> TurnInput:
    """Return a request that continues only from a command's answer, without anything before it."""
    if request.whole_facts is None:
        request = await kept_responses.read_input(request)
    body = {k: v for k, v in request.body.items() if k != "previous_response_id"}
    changes: dict[str, Any] = {"body": body, "chained": previous_id}
    if request.whole_facts is not None and isinstance(view := request.whole_facts.view, NativeView):
        changes["whole_facts"] = msgspec.structs.replace(
            request.whole_facts, view=replace(view, chained=previous_id)
        )
    else:
        changes["raw_body"] = await run_by_weight(request.raw_body, encode, body)
    return msgspec.structs.replace(request, **changes)


async def _go_on(request: TurnInput, row: StoredResponse, previous_id: str) -> TurnInput:
    """Return a request as it continues a response that its provider stores."""
    if request.whole_facts is None:
        request = await kept_responses.read_input(request)
    body = request.body
    facts = request.whole_facts
    if previous_id != row.rounds[-1] or row.pending:
        items = [*row.pending, *input_items(body)]
        body = {**body, "previous_response_id": row.rounds[-1], "input": items}
    if facts is not None and isinstance(view := facts.view, NativeView):
        spans = [(a + len(row.pending), b + len(row.pending)) for a, b in view.spans]
        view = replace(view, spans=spans, before=len(row.pending), chained=previous_id)
        facts = msgspec.structs.replace(facts, view=view)
    changes: dict[str, Any] = {"body": body, "whole_facts": facts, "chained": previous_id}
    if request.uses_memory and not request.conversation and row.conversation:
        changes["conversation"] = row.conversation
    if not request.uses_memory:
        changes["raw_body"] = await run_by_weight(request.raw_body, encode, body)
    return msgspec.structs.replace(request, **changes)


async def _resolve_references(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request with the memory's view of items that it only names by their ids.

    Those that their server cannot take so are sent in full.
    """
    request = await kept_responses.read_input(request)
    items = request.body.get("input")
    if not isinstance(items, list):
        return request
    try:
        full_items = await kept_responses.resolve(
            gateway, request.principal.tenant, request.user, items
        )
    except StoreUnavailable:
        return request
    if full_items is items:
        return request
    changes: dict[str, Any] = {}
    if request.whole_facts is not None:
        summaries = gateway.clients.find(request.headers).summaries
        facts = RESPONSES.facts({**request.body, "input": full_items}, summaries)
        facts.history.heavy = request.facts.history.heavy
        changes["whole_facts"] = facts
    sent_items = tell_items(items, full_items)
    body = changes["body"] = {**request.body, "input": sent_items}
    if sent_items != items and (not request.uses_memory or may_ask_for_compaction(request)):
        changes["raw_body"] = await run_by_weight(request.raw_body, encode, body)
    return msgspec.structs.replace(request, **changes)


async def find_own(
    gateway: GatewayState, principal: Principal, user: str | None, name: str
) -> StoredResponse:
    """Return a stored response of the caller's. Raises ResourceNotFound, Unavailable."""
    try:
        row = gateway.responses.find_held(principal.tenant, name)
        if row is None:
            await gateway.memory.wait_until_ready()
            row = await gateway.responses.find(principal.tenant, name)
    except StoreUnavailable as e:
        raise Unavailable(
            "The store that knows whose a response is is unavailable. Try again shortly.",
            headers=[(b"retry-after", b"1")],
        ) from e
    is_response = row is not None and row.kind in ("", COMMAND)
    if row is None or not is_response or not kept_responses.is_own(row, principal, user):
        raise ResourceNotFound(
            f"Response with id {name[:80]!r} not found.", code="previous_response_not_found"
        )
    return row


def user_named(
    gateway: GatewayState, principal: Principal, headers: Headers, path_user: str | None
) -> str | None:
    """Return the user whom a request without a body names, None for nobody.

    Such a request cannot name the user as the one did that made the response. So a key that may
    name any user, and names none, asks for all of them: its default user is not meant. Raises
    BadRequest, Forbidden.
    """
    if principal.trusted:
        principal = msgspec.structs.replace(principal, default_user="")
    return gateway.names.user(principal, headers, path_user, {})


def client_items(page: Json, tag: str) -> Json:
    """Return a page of input items without our additions."""
    data = page.get("data")
    if not isinstance(data, list):
        return page
    return {**page, "data": [_client_item(i, tag) for i in data]}


def _client_item(item: Any, tag: str) -> Any:
    if not isinstance(item, dict) or not isinstance(content := item.get("content"), list):
        return item
    clean_parts = without_spans(item, tag)["content"]
    client_parts = [
        clean_part
        for clean_part, part in zip(clean_parts, content, strict=True)
        if clean_part == part or _says(clean_part)
    ]
    return {**item, "content": client_parts}


def _says(part: Any) -> bool:
    return not isinstance(part, dict) or bool(str(part.get("text") or "").strip())
