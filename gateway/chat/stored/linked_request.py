"""What a request of the Responses API goes on from, decided once."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.chat.intake.owned_responses import (
    KEPT,
    conversation_named,
    find_conversation,
    missing_conversation,
)
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.whole_body import read_input
from gateway.errors import BadRequest
from gateway.http.json_thread import look_for
from gateway.state import GatewayState
from gateway.storage.responses import StoredResponse
from gateway.wire.item_references import REFERRING

# What a body holds that is in a conversation, or names items.
MARKS = (b'"conversation"', *REFERRING)
# A reference has a type or none: only a fenced key's request is read for those without.
IDENT = b'"id"'


@dataclass(frozen=True, slots=True)
class LinkedRequest:
    """A request with what it goes on from.

    request: read whole where it may name what is stored. previous_id: the response before it, ""
    for none. thread: id of the conversation kept here that it is in, "" for none. is_kept_here: its
    server gets it whole, and this gateway keeps it. is_guarded: by its provider, since the account
    is the client's own. may_refer: its items may be named by their ids.
    """

    request: TurnInput
    previous_id: str
    thread: str
    is_kept_here: bool
    is_guarded: bool
    may_refer: bool


async def read_link(gateway: GatewayState, request: TurnInput) -> LinkedRequest:
    """Return what a request goes on from.

    Raises ResourceNotFound for another owner's conversation, BadRequest, Unavailable.
    """
    provider_keeps = request.route.keeps_responses
    is_guarded = gateway.keys.own and not request.uses_memory
    marks: tuple[bytes, ...] = MARKS
    if provider_keeps and request.principal.paths is not None:
        marks = (*MARKS, IDENT)
    may_refer = await look_for(request.raw_body, *marks)
    previous_id = request.body.get("previous_response_id")
    if not isinstance(previous_id, str):
        previous_id = ""
    goes_on = bool(previous_id) and not (provider_keeps and is_guarded)
    if may_refer or goes_on:
        request = await read_input(request)
    row = None
    if may_refer and (name := conversation_named(request.body)):
        row = await _find_thread(gateway, request, name, provider_keeps and is_guarded)
    is_in_thread = row is not None and not row.target
    thread = row.id if row is not None and (is_in_thread or not provider_keeps) else ""
    is_kept_here = is_in_thread or not provider_keeps
    return LinkedRequest(request, previous_id, thread, is_kept_here, is_guarded, may_refer)


async def _find_thread(
    gateway: GatewayState, request: TurnInput, name: str, is_guarded: bool
) -> StoredResponse | None:
    """Return the conversation that a request is in; None for one of the account's own.

    Raises ResourceNotFound for another owner's, BadRequest, Unavailable.
    """
    if is_guarded and not name.startswith(KEPT):
        return None
    if request.body.get("previous_response_id") is not None:
        raise BadRequest(
            "`previous_response_id` and `conversation` cannot both be sent: send one of them.",
            param="conversation",
        )
    row = await find_conversation(gateway, request.principal, request.user, name)
    if row is None and not request.route.keeps_responses:
        raise missing_conversation(name)
    if row is not None and row.user is None and request.user is not None:
        await gateway.responses.claim(request.principal.tenant, name, request.user)
    return row
