"""What a request goes on from: checked here, and linked by the room of stored objects."""

from __future__ import annotations

from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.owned_responses import (
    conversation_named,
    find_conversation,
    find_own,
)
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.stored_names import check_stored_names
from gateway.state import GatewayState


async def link_request(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return a chained request as it continues at the provider, in the same conversation.

    Raises ResourceNotFound if what it goes on from is not the caller's.
    """
    if request.principal.paths is not None:
        request = await check_stored_names(gateway, request)
    elif gateway.keys.own and request.whole_facts is not None:
        # The account is the caller's own, so that it may name whatever is there.
        request.whole_facts.history.after.checked = True
    if request.api is RESPONSES and gateway.stored is not None:
        linked_request: TurnInput = await gateway.stored.link(gateway, request)
        return linked_request
    body = request.body
    may_go_on = "previous_response_id" in body or "conversation" in body
    if may_go_on and request.principal.paths is not None:
        await _check_chain(gateway, request)
    return request


async def _check_chain(gateway: GatewayState, request: TurnInput) -> None:
    """Check what a request goes on from where nothing links it: its server may.

    Raises ResourceNotFound for another owner's, BadRequest, Unavailable.
    """
    principal = request.principal
    user = request.user
    body = request.body
    if isinstance(name := body.get("previous_response_id"), str):
        await find_own(gateway, principal, user, name)
    if "conversation" in body and (name := conversation_named(body)):
        await find_conversation(gateway, principal, user, name)
