"""Conversation objects of the Responses API: whose they are, and those that are kept here.

One that the provider keeps has a row that says whose it is. One that is kept here is the turns in
it, and what its client added: a request in it is expanded to all of that, whatever its server keeps
(`kept_responses`). A conversation that nobody named in the request that made it is its
first user's.
"""

from __future__ import annotations

from typing import Any

from gateway.auth.authenticator import Principal
from gateway.chat.intake.request import TurnInput
from gateway.chat.stored import kept_responses
from gateway.errors import BadRequest, ResourceNotFound
from gateway.http.json_thread import look_for
from gateway.state import GatewayState
from gateway.storage.responses import CONVERSATION, StoredResponse
from gateway.wire.chat import Json
from memory import StoreUnavailable

# What the ids of those begin with that are kept here.
KEPT = "conv_kept"
MEMBER = b'"conversation"'
# A member may be spelt with it.
ESCAPE = b"\\u00"


async def find_thread(gateway: GatewayState, request: TurnInput) -> StoredResponse | None:
    """Return the conversation that a request is in; None for none, or one of the account's own.

    Raises ResourceNotFound for another owner's, BadRequest, Unavailable.
    """
    if not await look_for(request.raw_body, MEMBER, ESCAPE):
        return None
    request = await kept_responses.read_input(request)
    name = conversation_named(request.body)
    account = gateway.keys.own and not request.uses_memory and request.route.keeps_responses
    if not name or (account and not name.startswith(KEPT)):
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


def conversation_named(body: Json) -> str:
    """Return the id of the conversation that a request names, "" for none. Raises BadRequest."""
    reference: Any = body.get("conversation")
    if reference is None:
        return ""
    if isinstance(reference, dict):
        name = reference.get("id")
    else:
        name = reference
    if not isinstance(name, str) or not name:
        raise BadRequest(
            "`conversation` must be an id, or an object with an `id`.", param="conversation"
        )
    return name


async def find_conversation(
    gateway: GatewayState, principal: Principal, user: str | None, name: str
) -> StoredResponse | None:
    """Return a conversation of the caller's; None for one that only the caller's account knows.

    Raises ResourceNotFound for another owner's, Unavailable.
    """
    try:
        await gateway.memory.wait_until_ready()
        row = await gateway.responses.find(principal.tenant, name)
    except StoreUnavailable as e:
        raise kept_responses.store_is_away() from e
    if row is None and gateway.keys.own and not name.startswith(KEPT):
        return None
    if row is None or row.kind != CONVERSATION or not _is_open_to(row, principal, user):
        raise missing_conversation(name)
    return row


def _is_open_to(row: StoredResponse, principal: Principal, user: str | None) -> bool:
    return row.user is None or kept_responses.is_own(row, principal, user)


def missing_conversation(name: str) -> ResourceNotFound:
    """Return the refusal of a conversation that is not the caller's."""
    return ResourceNotFound(
        f"Conversation with id {name[:80]!r} not found.",
        code="conversation_not_found",
        param="conversation",
    )
