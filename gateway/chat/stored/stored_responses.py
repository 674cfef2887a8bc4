"""Responses that the provider stores: `previous_response_id`, and requests on them.

The client knows a response by the id of its first round; the provider continues from the last
round. So each stored response has a row (`gateway.storage.responses`) with both ids, its owner, and
what the client saw. A response without a row of the caller's is unknown: 404.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gateway.apis.native import NativeView
from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.stored_names import check_items
from gateway.chat.stored import kept_responses
from gateway.chat.stored.compaction_trigger import may_ask_for_compaction
from gateway.chat.stored.linked_request import read_link
from gateway.http.json_thread import run_by_weight
from gateway.state import GatewayState
from gateway.storage.responses import StoredResponse
from gateway.wire.chat import Json, encode
from gateway.wire.item_references import tell_items
from memory import StoreUnavailable, without_spans


async def link_response(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return a chained request as it continues at the provider, in the same conversation.

    Raises ResourceNotFound if the response is not the caller's.
    """
    link = await read_link(gateway, request)
    if link.is_kept_here:
        return await kept_responses.expand(gateway, link)
    request = link.request
    if link.may_refer:
        if not link.is_guarded:
            items = input_items(request.body)
            await check_items(gateway, request.principal, request.user, items)
        request = await _resolve_references(gateway, request)
    if link.row is not None:
        return await _go_on(request, link.row, link.previous_id)
    if link.previous_id and not link.is_guarded:
        return await _begin_anew(request, link.previous_id)
    return request


async def _begin_anew(request: TurnInput, previous_id: str) -> TurnInput:
    """Return a request that continues only from a command's answer, without anything before it."""
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
    if not request.uses_memory:
        changes["raw_body"] = await run_by_weight(request.raw_body, encode, body)
    elif not request.conversation and row.conversation:
        changes["conversation"] = row.conversation
    return msgspec.structs.replace(request, **changes)


async def _resolve_references(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request with the memory's view of items that it only names by their ids.

    Those that their server cannot take so are sent in full.
    """
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
