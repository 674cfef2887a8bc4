"""Whose a stored response or conversation is: nobody else may go on from it.

Each has a row that says whose it is (`gateway.storage.responses`), wherever its items are kept. One
without a row of the caller's is unknown: 404.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.auth.authenticator import Headers, Principal
from gateway.chat.intake.request import TurnInput
from gateway.errors import BadRequest, ResourceNotFound, Unavailable
from gateway.state import GatewayState
from gateway.storage.responses import COMMAND, CONVERSATION, StoredResponse
from gateway.wire.chat import Json
from memory import StoreUnavailable

# What the ids of conversations begin with that are kept here.
KEPT = "conv_kept"


def is_own(row: StoredResponse, principal: Principal, user: str | None) -> bool:
    """Tell whether a response is of the user who asks, or of one the key may speak for."""
    if user is not None or row.user is None:
        return row.user == user
    return principal.may_name(row.user)


def is_kept(row: StoredResponse) -> bool:
    """Tell whether a response is kept here, with all that is needed to go on from it."""
    return "input" in row.echo and (row.shown is not None or "output" in row.echo)


def store_is_away() -> Unavailable:
    """Return the refusal while nobody knows what is kept."""
    return Unavailable(
        "The store that keeps responses is unavailable. Try again shortly.",
        headers=[(b"retry-after", b"1")],
    )


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
    if row is None or not is_response or not is_own(row, principal, user):
        raise ResourceNotFound(
            f"Response with id {name[:80]!r} not found.", code="previous_response_not_found"
        )
    return row


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
        raise store_is_away() from e
    if row is None and gateway.keys.own and not name.startswith(KEPT):
        return None
    if row is None or row.kind != CONVERSATION or not _is_open_to(row, principal, user):
        raise missing_conversation(name)
    return row


async def find_thread(
    gateway: GatewayState, request: TurnInput, is_guarded: bool
) -> StoredResponse | None:
    """Return the conversation that a request is in; None for none, or one of the account's own.

    Raises ResourceNotFound for another owner's, BadRequest, Unavailable.
    """
    name = conversation_named(request.body)
    if not name or (is_guarded and not name.startswith(KEPT)):
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


def _is_open_to(row: StoredResponse, principal: Principal, user: str | None) -> bool:
    return row.user is None or is_own(row, principal, user)


def missing_conversation(name: str) -> ResourceNotFound:
    """Return the refusal of a conversation that is not the caller's."""
    return ResourceNotFound(
        f"Conversation with id {name[:80]!r} not found.",
        code="conversation_not_found",
        param="conversation",
    )


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
