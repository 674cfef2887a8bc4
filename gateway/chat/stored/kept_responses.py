"""Responses kept here, for servers that keep none: `stateful = false`, and servers without the API.

Such a server gets each request whole. What a client stores with it (`store`, true where it does not
say) is kept in this gateway: the items that it sent, and those it was answered with. A request that
goes on from one, or is in a conversation that is kept here, is expanded to the items of the whole
chain, and is then like any other that resends its history: the memory recognises it, and places the
hidden exchanges.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from gateway.apis.base import RequestFacts
from gateway.apis.native import NativeView
from gateway.apis.responses.responses_format import RESPONSES, input_items
from gateway.auth.authenticator import Principal
from gateway.chat.intake.owned_responses import is_kept, is_own, store_is_away
from gateway.chat.intake.request import TurnInput
from gateway.chat.stored.linked_request import LinkedRequest
from gateway.chat.stored.named_items import names_any, resolve_all
from gateway.errors import BadRequest, RequestConflict, Unavailable
from gateway.http.request_weight import TooHeavy, check_values, check_weight
from gateway.state import GatewayState
from gateway.storage.responses import (
    COMMAND,
    MAX_CHAIN,
    MAX_CHAIN_BYTES,
    StoredResponse,
    ThreadTooLong,
)
from gateway.wire.chat import Json, encode
from gateway.wire.json_weight import is_light
from memory import StoreUnavailable

log = logging.getLogger("mnemogate")
CHAINED = ("previous_response_id", "conversation")
# Of a page.
MOST_ITEMS = 100
# The type of an item that was.
DELETED = "deleted"
MIB = 1 << 20
# Of one request's items; a longer one is served, and not kept.
MAX_KEPT_BYTES = 8 << 20


async def expand(gateway: GatewayState, link: LinkedRequest) -> TurnInput:
    """Return a request for a server that keeps nothing, with the items of its chain.

    It is kept here if there is room for it. One that says nothing of `store`, and goes on from
    nothing, is served all the same and not kept. Raises BadRequest for a response or an item that
    is not kept here, RequestConflict, and Unavailable.
    """
    request = await _join_chain(gateway, link)
    if request.kept_items is None:
        return request
    tenant = request.principal.tenant
    size = len(link.request.raw_body)
    try:
        await check_room(gateway, tenant, request.user, request.thread, size)
    except RequestConflict as e:
        if request.thread or request.chained or link.request.body.get("store") is True:
            raise
        log.warning("a response is not kept: %s", e.message)
        facts = request.whole_facts
        if facts is not None and isinstance(view := facts.view, NativeView):
            facts = msgspec.structs.replace(facts, view=replace(view, stored=False))
        return msgspec.structs.replace(request, kept_items=None, whole_facts=facts)
    return request


async def _join_chain(gateway: GatewayState, link: LinkedRequest) -> TurnInput:
    """Return a request with the items of its chain, whether or not there is room for it."""
    request = link.request
    chained = link.previous_id
    thread = link.thread
    body = request.body
    sent_body = {k: v for k, v in body.items() if k not in CHAINED} | {"store": False}
    keeps = link.keeps
    kept_items = input_items(body) if keeps else None
    facts_read = request.whole_facts
    if not (chained or thread or names_any(input_items(body))):
        if facts_read is not None and isinstance(view := facts_read.view, NativeView):
            facts_read = msgspec.structs.replace(facts_read, view=replace(view, stored=keeps))
        return msgspec.structs.replace(
            request, body=sent_body, whole_facts=facts_read, kept_items=kept_items
        )
    principal, user = request.principal, request.user
    rows = await chain_rows(gateway, principal, user, chained) if chained else []
    rows = await thread_rows(gateway, principal, user, thread) if thread else rows
    chain_items = [item for row in rows for item in items_in(row)]
    items = [*chain_items, *input_items(sent_body)]
    items = await resolve_all(gateway, principal.tenant, user, items)
    summaries = gateway.clients.find(request.headers).summaries if facts_read is not None else None
    whole_request = await asyncio.to_thread(_read_again, {**sent_body, "input": items}, summaries)
    changes: dict[str, Any] = {"body": whole_request.body, "raw_body": whole_request.raw_body}
    changes |= {"chained": chained, "thread": thread}
    if whole_request.facts is None:
        changes |= {"whole_facts": None, "too_heavy": whole_request.too_heavy or request.too_heavy}
        return msgspec.structs.replace(request, **changes)
    view = whole_request.facts.view
    if isinstance(view, NativeView):
        view = replace(view, chained=chained, stored=keeps, thread=thread)
    facts = msgspec.structs.replace(whole_request.facts, view=view)
    return msgspec.structs.replace(request, **changes, whole_facts=facts, kept_items=kept_items)


class _WholeRequest(NamedTuple):
    """A request with its chain.

    facts: None where memory has no part. too_heavy: why it cannot look at it, "" where it can.
    """

    body: Json
    raw_body: bytes
    facts: RequestFacts | None = None
    too_heavy: str = ""


def _read_again(body: Json, summaries: Sequence[str] | None) -> _WholeRequest:
    """Return a request as it is sent on. summaries: None where memory has no part in it."""
    raw_body = _encode(body)
    if summaries is None:
        return _WholeRequest(body, raw_body)
    try:
        check_values(raw_body)
        facts = RESPONSES.facts(body, summaries)
        check_weight(len(raw_body), facts.history)
    except TooHeavy as e:
        return _WholeRequest(body, raw_body, too_heavy=str(e))
    facts.history.heavy = facts.history.heavy or not is_light(raw_body)
    return _WholeRequest(body, raw_body, facts)


def _encode(body: Json) -> bytes:
    return encode(body)


async def chain_rows(
    gateway: GatewayState, principal: Principal, user: str | None, name: str
) -> list[StoredResponse]:
    """Return the responses up to this one, the oldest first. Raises BadRequest, Unavailable."""
    try:
        await gateway.memory.wait_until_ready()
        rows = await gateway.responses.chain(
            principal.tenant, name, lambda row: is_own(row, principal, user)
        )
    except StoreUnavailable as e:
        raise store_is_away() from e
    except ThreadTooLong as e:
        raise too_long(name) from e
    rooted = rows and (rows[0].thread or not rows[0].echo.get("previous_response_id"))
    rows = [row for row in rows if row.kind != COMMAND]
    if not rooted or not all(map(is_kept, rows)):
        raise BadRequest(
            f"The gateway does not have all that leads to response {name[:80]!r}, and this model's "
            f"server keeps none. It keeps what is stored with memory on, up to {MAX_CHAIN} "
            f"responses and {MAX_CHAIN_BYTES >> 20} MiB in a row. Send the whole input instead.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return rows


async def thread_rows(
    gateway: GatewayState, principal: Principal, user: str | None, name: str
) -> list[StoredResponse]:
    """Return what a conversation of the caller's holds. Raises BadRequest, Unavailable."""
    try:
        return await gateway.responses.thread(
            principal.tenant, name, lambda row: is_own(row, principal, user)
        )
    except StoreUnavailable as e:
        raise store_is_away() from e
    except ThreadTooLong as e:
        raise too_long(name) from e


def too_long(name: str) -> BadRequest:
    """Return the refusal of a conversation that no request can be made of."""
    return BadRequest(
        f"The conversation {name[:80]!r} has more than {MAX_CHAIN} turns, or more than "
        f"{MAX_CHAIN_BYTES >> 20} MiB: that is the limit of what is kept here. Begin another.",
        param="conversation",
    )


async def check_room(
    gateway: GatewayState, tenant: str, user: str | None, thread: str, size: int
) -> None:
    """Check that so many bytes more may be kept, and count them.

    thread: the conversation that they are of, "" for none. Raises RequestConflict, Unavailable.
    """
    settings = gateway.settings.memory
    sizes = gateway.kept_sizes
    try:
        await gateway.memory.wait_until_ready()
        user_bytes = await sizes.of_user(tenant, user)
        conversation_bytes = 0
        if thread:
            conversation_bytes = await sizes.of_conversation(tenant, thread)
    except StoreUnavailable as e:
        raise store_is_away() from e
    owner_name = "Requests that name no user"
    if user is not None:
        owner_name = f"The user {user[:64]!r}"
    has = "has" if user is not None else "have"
    _refuse_if_full(f"{owner_name} {has}", user_bytes + size, "kept_mib", settings.kept_mib)
    if thread:
        limit = settings.kept_conversation_mib
        where = f"The conversation {thread[:80]!r} has"
        _refuse_if_full(where, conversation_bytes + size, "kept_conversation_mib", limit)
    sizes.add(tenant, user, thread, size)


async def has_room(
    gateway: GatewayState, request: TurnInput, kept_parts: Json, response: Json
) -> bool:
    """Tell whether what nobody has looked at before the turn may be kept.

    The answer is finished, so it is served all the same.
    """
    size = len(_encode(response)) + len(_encode(kept_parts))
    try:
        await check_room(gateway, request.principal.tenant, request.user, request.thread, size)
    except (RequestConflict, Unavailable) as e:
        log.warning("a response is not kept: %s", e.message)
        return False
    return True


def _refuse_if_full(holder: str, size: int, setting: str, limit: float) -> None:
    if size > limit * MIB:
        raise RequestConflict(
            f"{holder} {size / MIB:.1f} MiB of stored responses and conversation items with this "
            f"request; the limit is {limit:g} MiB (memory.{setting}). Delete some of them, or send "
            "`store: false`, or have the limit raised.",
            code="kept_space",
        )


def items_in(row: StoredResponse) -> list[Json]:
    """Return the items of a turn that is kept here, but for those that were deleted."""
    return [i for i in (*row.echo["input"], *_output_of(row)) if not is_deleted(i)]


def is_deleted(item: Any) -> bool:
    """Tell whether an item's client has deleted it. Its place stays, since it has a number."""
    return isinstance(item, dict) and item.get("type") == DELETED


def _output_of(row: StoredResponse) -> list[Json]:
    """Return what the client was answered with, with reasoning as the server gave it."""
    output: list[Json] = row.echo.get("output") or (row.shown or {}).get("output") or []
    return output


def kept_members(items: Sequence[Any], replies: Sequence[Json], response: Json) -> tuple[Json, int]:
    """Return what is kept of a turn's request and answer, and the bytes of the answer.

    {} and 0 where that is too long. items: that the client sent. replies: the turn's rounds, as
    received. response: the answer.
    """
    kept_parts: Json = {"input": list(items)}
    if len(replies) == 1:
        calls = {str(i.get("call_id")) for i in response.get("output") or ()}
        output = replies[0].get("output") or ()
        kept_parts["output"] = [
            i for i in output if str(i.get("call_id")) in calls or "call_id" not in i
        ]
    if len(_encode(kept_parts)) > MAX_KEPT_BYTES:
        return {}, 0
    return kept_parts, len(_encode(response)) + len(_encode(kept_parts.get("output") or {}))


async def measure_kept(
    items: Sequence[Any], replies: Sequence[Json], response: Json, *, is_long: bool
) -> tuple[Json, int]:
    """Return what `kept_members` does, of a long answer found out in a thread."""
    measure = partial(kept_members, items, replies, response)
    return await asyncio.to_thread(measure) if is_long else measure()


def input_of(row: StoredResponse) -> list[Json]:
    """Return the items that a response was asked with, each with an id."""
    numbered_items = enumerate(row.echo["input"])
    return [
        {"id": f"{row.id}_in_{i}", **item} for i, item in numbered_items if not is_deleted(item)
    ]


def asked_page(items: list[Json], query: str) -> Json:
    """Return the page of items that a query asks for. Raises BadRequest."""
    parameters = {k: v[0] for k, v in parse_qs(query).items()}
    limit = parameters.get("limit", "20")
    order = parameters.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_ITEMS):
        raise BadRequest(
            f"`limit` is {limit[:40]!r}: give a number from 1 to {MOST_ITEMS}.", param="limit"
        )
    if order not in ("asc", "desc"):
        raise BadRequest(f"`order` is {order[:40]!r}: use asc or desc.", param="order")
    return page_of(items, int(limit), parameters.get("after", ""), newest=order == "desc")


def page_of(items: list[Json], limit: int, after: str, *, newest: bool) -> Json:
    """Return a page of items, as the API lists them.

    after: id of the item behind which it begins, "" for the first. newest: the newest come first.
    """
    if newest:
        items = items[::-1]
    begin = next((i + 1 for i, item in enumerate(items) if item["id"] == after), 0)
    data = items[begin : begin + limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": begin + limit < len(items),
    }
