"""Responses that the provider stores: `previous_response_id`, and requests on them.

The client knows a response by the id of its first round; the provider continues from the last
round. So each stored response has a row (`gateway.storage.responses`) with both ids, its owner, and
what the client saw. A response without a row of the caller's is unknown: 404.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gateway.apis.native import NativeView
from gateway.apis.responses.responses_format import input_items
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.stored_names import check_items
from gateway.chat.stored import kept_responses
from gateway.chat.stored.compaction_trigger import may_ask_for_compaction
from gateway.chat.stored.linked_request import LinkedRequest, read_link
from gateway.chat.stored.named_items import tell_named
from gateway.http.json_thread import run_by_weight
from gateway.state import GatewayState
from gateway.wire.chat import Json, encode
from gateway.wire.item_references import references
from memory import without_spans


async def link_response(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return a chained request as it continues at the provider, in the same conversation.

    Raises ResourceNotFound if the response is not the caller's.
    """
    link = await read_link(gateway, request)
    if link.is_kept_here:
        return await kept_responses.expand(gateway, link)
    request = link.request
    goes_on = link.row is not None or (bool(link.previous_id) and not link.is_guarded)
    if not (link.may_refer or goes_on):
        return request
    items = input_items(request.body)
    if ids := references(items) if link.may_refer else ():
        if not link.is_guarded:
            await check_items(gateway, request.principal, request.user, ids)
        request = await tell_named(gateway, request, items)
        items = request.body["input"]
    if goes_on:
        request = _go_on(request, link, items)
    # A turn with memory is composed of what was read of it.
    is_sent_raw = not request.uses_memory or may_ask_for_compaction(request)
    if request.body is link.request.body or not is_sent_raw:
        return request
    raw_body = await run_by_weight(request.raw_body, encode, request.body)
    return msgspec.structs.replace(request, raw_body=raw_body)


def _go_on(request: TurnInput, link: LinkedRequest, items: Sequence[Json]) -> TurnInput:
    """Return a request as it continues a response that its provider stores.

    Behind nothing but the answer of a command it begins anew there. items: its input.
    """
    body = request.body
    row = link.row
    pending: Sequence[Json] = ()
    conversation = request.conversation
    if row is None:
        body = {k: v for k, v in body.items() if k != "previous_response_id"}
    else:
        pending = row.pending
        conversation = conversation or row.conversation
        if pending or link.previous_id != row.rounds[-1]:
            following = {"previous_response_id": row.rounds[-1], "input": [*pending, *items]}
            body = {**body, **following}
    facts = request.whole_facts
    if facts is not None and isinstance(view := facts.view, NativeView):
        before = len(pending)
        spans = [(begin + before, end + before) for begin, end in view.spans]
        view = replace(view, spans=spans, before=before, chained=link.previous_id)
        facts = msgspec.structs.replace(facts, view=view)
    return msgspec.structs.replace(
        request, body=body, whole_facts=facts, chained=link.previous_id, conversation=conversation
    )


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
