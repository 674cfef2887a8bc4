"""Responses that the provider stores: `previous_response_id`, and the verbs on a stored response.

The client knows a response by the id of its first round; the provider goes on from the last. So
each stored response has a row (`gateway.storage.responses`) with both, with its owner, and with
what the client was shown. A response without a row of the caller's is unknown: 404.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gateway.auth.authenticator import Principal
from gateway.chat import kept_responses
from gateway.chat.request import TurnInput
from gateway.errors import ResourceNotFound, Unavailable
from gateway.http.json_thread import run_by_weight
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.storage import responses
from gateway.storage.responses import StoredResponse
from gateway.wire.chat import Json
from gateway.wires.base import HiddenRounds, ReplyMask
from gateway.wires.envelope import EnvelopeMask
from gateway.wires.native import HiddenParts, NativeView
from gateway.wires.responses.format import RESPONSES, input_items
from memory import StoreUnavailable, without_spans

ECHOED = ("instructions", "previous_response_id", "include")


async def link_response(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return a chained request as it goes on at the provider, in the memory's same conversation.

    Raises ResourceNotFound for a response that is not the caller's.
    """
    if request.wire is not RESPONSES:
        return request
    if not request.route.keeps_responses:
        return await kept_responses.expand(gateway, request)
    request = await _resolve_references(gateway, request)
    named = request.body.get("previous_response_id")
    if not isinstance(named, str):
        return request
    if not request.uses_memory and gateway.keys.own:
        return request  # the client's own account, which the provider guards
    row = await find_own(gateway, request.principal, request.user, named)
    if request.found is None:
        request = await kept_responses.read_input(request)
    body, found = request.body, request.found
    if named != row.rounds[-1] or row.pending:
        items = [*row.pending, *input_items(body)]
        body = {**body, "previous_response_id": row.rounds[-1], "input": items}
    if found is not None and isinstance(view := found.view, NativeView):
        spans = [(a + len(row.pending), b + len(row.pending)) for a, b in view.spans]
        view = replace(view, spans=spans, before=len(row.pending), chained=named)
        found = replace(found, view=view)
    changes: dict[str, Any] = {"body": body, "found": found, "chained": named}
    if request.uses_memory and not request.conversation and row.conversation:
        changes["conversation"] = row.conversation
    if not request.uses_memory:
        changes["raw"] = await run_by_weight(request.raw, msgspec.json.encode, body)
    return msgspec.structs.replace(request, **changes)


async def _resolve_references(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request with the memory's view of items that it names by their ids alone."""
    items = request.body.get("input")
    if request.found is None or not isinstance(items, list):
        return request
    try:
        told = await kept_responses.resolve(gateway, request, items)
    except StoreUnavailable:
        return request
    if told is items:
        return request
    summaries = gateway.clients.find(request.headers).summaries
    found = RESPONSES.facts({**request.body, "input": told}, summaries)
    found.history.heavy = request.facts.history.heavy
    return msgspec.structs.replace(request, found=found)


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
    if row is None or not kept_responses.is_own(row, principal, user):
        raise ResourceNotFound(
            f"Response with id {name[:80]!r} not found.", code="previous_response_not_found"
        )
    return row


def keeper_of(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher
) -> ResponseKeeper | None:
    """Return what keeps a turn's response; None for a format whose provider stores nothing."""
    return ResponseKeeper(gateway, request, forward) if request.wire is RESPONSES else None


@dataclass(frozen=True, slots=True)
class ResponseKeeper:
    """Keeps what a turn leaves at the provider.

    request: of the turn. forward: who served it.
    """

    gateway: GatewayState
    request: TurnInput
    forward: Dispatcher

    def row(
        self, mask: ReplyMask, replies: Sequence[Json], hidden: HiddenRounds, conversation: str
    ) -> StoredResponse | None:
        """Return the row of an answer; None where the provider stores nothing.

        replies: its rounds, as received.
        """
        shown = mask.merged() if isinstance(mask, EnvelopeMask) else {}
        rounds = [str(r["id"]) for r in replies if r.get("id")]
        served, request = self.forward.served, self.request
        if not rounds or served is None:
            return None
        kept = self._kept_members(served, replies, shown)
        if shown.get("store") is not True and not kept:
            return None
        pending = isinstance(hidden, HiddenParts) and hidden.reply.get("id") == rounds[-1]
        unfinished = shown.get("status") in ("queued", "in_progress")
        return StoredResponse(
            str(shown.get("id")),
            request.principal.tenant,
            request.user,
            rounds,
            served.label,
            request.body["model"],
            conversation,
            hidden.last if isinstance(hidden, HiddenParts) and pending else (),
            None if unfinished else shown,
            {m: self._client_member(m) for m in ECHOED} | kept,
            time.time(),
        )

    def _kept_members(self, served: Target, replies: Sequence[Json], shown: Json) -> Json:
        """Return what is kept here of an answer; {} where its provider stores it, or nobody."""
        request = self.request
        if request.kept is not None:
            return kept_responses.kept_members(request.kept, replies, shown)
        # Its server was only now found to keep nothing.
        learnt = not served.keeps_responses and not request.chained
        if not learnt or request.body.get("store") is False:
            return {}
        return kept_responses.kept_members(input_items(request.body), replies, shown)

    def beside(self, found: StoredResponse | None) -> Mapping[str, Json]:
        """Return what is written with a turn."""
        return {} if found is None else {responses.ResponseTable.counted: responses.plain(found)}

    def settle(self, found: StoredResponse | None, *, written: bool) -> None:
        """Write a row by itself, where that was not done with its turn."""
        if found is not None and not written:
            self.gateway.responses.save(found)
        self.gateway.responses.write_held()

    def _client_member(self, name: str) -> Any:
        if name == "previous_response_id":
            return self.request.chained or None
        return self.request.body.get(name)


def client_items(page: Json, tag: str) -> Json:
    """Return a page of input items without what of ours was placed into them."""
    data = page.get("data")
    if not isinstance(data, list):
        return page
    return {**page, "data": [_client_item(i, tag) for i in data]}


def _client_item(item: Any, tag: str) -> Any:
    if not isinstance(item, dict) or not isinstance(content := item.get("content"), list):
        return item
    cleaned = without_spans(item, tag)["content"]
    kept = [new for new, old in zip(cleaned, content, strict=True) if new == old or _says(new)]
    return {**item, "content": kept}


def _says(part: Any) -> bool:
    return not isinstance(part, dict) or bool(str(part.get("text") or "").strip())
