"""What a request of the Responses API goes on from, decided once."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.chat.intake.owned_responses import find_base, find_thread, is_kept
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.whole_body import read_input
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
    for none. row: of that, where its provider goes on from it; of a command's answer it is the one
    before. thread: id of the conversation kept here that it is in, "" for none. is_kept_here: its
    server gets it whole, with all that it goes on from. keeps: what it says and is answered is to
    be kept here then. is_guarded: by its provider, since the account is the client's own.
    may_refer: its items may be named by their ids.
    """

    request: TurnInput
    previous_id: str
    row: StoredResponse | None
    thread: str
    is_kept_here: bool
    keeps: bool
    is_guarded: bool
    may_refer: bool


async def read_link(gateway: GatewayState, request: TurnInput) -> LinkedRequest:
    """Return what a request goes on from.

    Raises ResourceNotFound for what is another owner's, BadRequest, Unavailable.
    """
    provider_keeps = request.route.keeps_responses
    uses_memory = request.uses_memory
    is_guarded = gateway.keys.own and not uses_memory
    marks: tuple[bytes, ...] = MARKS
    if provider_keeps and request.principal.paths is not None:
        marks = (*MARKS, IDENT)
    may_refer = await look_for(request.raw_body, *marks)
    previous_id = request.body.get("previous_response_id")
    if not isinstance(previous_id, str):
        previous_id = ""
    goes_on = bool(previous_id) and not (provider_keeps and is_guarded)
    if request.whole_facts is None and (may_refer or goes_on):
        request = await read_input(request)
    thread = None
    if may_refer:
        thread = await find_thread(gateway, request, provider_keeps and is_guarded)
    is_kept_here = not provider_keeps or (thread is not None and not thread.target)
    row = None
    if goes_on and not is_kept_here:
        row = await find_base(gateway, request.principal, request.user, previous_id)
        # Though the server keeps those of today.
        is_kept_here = row is not None and is_kept(row)
    keeps = uses_memory and request.mode != "read" and request.body.get("store") is not False
    thread_id = thread.id if thread is not None and is_kept_here else ""
    return LinkedRequest(
        request, previous_id, row, thread_id, is_kept_here, keeps, is_guarded, may_refer
    )
