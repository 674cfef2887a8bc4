"""Checks who owns the objects that a request names: items, files, vector stores, containers.

With managed keys all tenants share the provider's account, so the provider would find another
tenant's object. The owners of items are known here, and those of containers that an answer
mentioned. Other stored objects may only be named by keys whose `paths` allow them; to any other key
they are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice

from gateway.auth.authenticator import Principal
from gateway.chat.intake.named_objects import (
    is_plain_chat,
    may_lead,
    may_name_models,
    may_name_objects,
    models_in,
    names_nothing,
    objects_in,
)
from gateway.chat.intake.owned_responses import store_is_away
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.whole_body import read_input, read_whole
from gateway.errors import BadRequest, Forbidden, ResourceNotFound, Unavailable
from gateway.http.json_thread import look_for, run_by_weight
from gateway.routing.router import is_model_allowed
from gateway.state import GatewayState
from gateway.storage.responses import LOOKED_UP
from gateway.wire.chat import Json
from gateway.wire.json_members import check_names_once
from gateway.wire.json_weight import SURE_BYTES
from memory import StoreUnavailable

# What a body names stored responses, conversations and items with; an escape may spell it.
CHAINING = (b"previous_response_id", b'"conversation"', b"item_reference")
NAMING = (*CHAINING, b'"id"', b"\\u00")
# Those that answers told of are known, as items are.
CONTAINERS = "containers"


async def check_stored_names(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request; it is read whole if it names stored objects.

    Raises ResourceNotFound for objects that the caller may not name, BadRequest, Unavailable.
    """
    principal = request.principal
    if principal.paths is None:
        return request
    # Without memory its messages are decoded, and most are plain.
    is_decoded = request.whole_facts is None and request.api.is_chat
    if is_decoded and is_plain_chat(request.body, request.raw_body):
        return request
    # It goes on as it came.
    if not request.uses_memory and await look_for(request.raw_body, *CHAINING):
        await run_by_weight(request.raw_body, check_members, request.raw_body)
    history = None
    if request.whole_facts is not None:
        history = request.whole_facts.history
    text = (history.unchecked if history is not None else b"") or request.raw_body
    if len(text) <= SURE_BYTES and names_nothing(text):
        objects = False
        models = False
    else:
        objects, models = await run_by_weight(text, _look_through, text)
    if history is not None and not (objects or models):
        history.after.checked = True
    if not (objects or (models and "*" not in principal.models)):
        return request
    request = await read_input(request)
    body = request.body
    # Whose messages are not decoded.
    if request.api.is_chat:
        body = await run_by_weight(request.raw_body, read_whole, request.raw_body)
    await check_names(gateway, principal, request.user, request.raw_body, body)
    return request


def may_name(principal: Principal, raw_body: bytes) -> bool:
    """Tell whether a body may name what its key does not reach, before it is read."""
    is_limited = "*" not in principal.models
    return may_name_objects(raw_body) or (is_limited and may_name_models(raw_body))


def _look_through(text: bytes) -> tuple[bool, bool]:
    """Tell whether a body may name stored objects, and other models, before it is read."""
    if names_nothing(text):
        return False, False
    return may_name_objects(text), may_name_models(text)


async def check_names(
    gateway: GatewayState, principal: Principal, user: str | None, raw_body: bytes, body: Json
) -> None:
    """Check that a body names nothing that is beyond the caller's reach.

    Raises ResourceNotFound for a stored object, Forbidden for a model.
    """
    if principal.paths is None:
        return
    objects = await run_by_weight(raw_body, _out_of_reach, principal, body)
    container_ids = [name for place, name in objects if place == CONTAINERS]
    owners = await _owners_of(gateway, principal.tenant, container_ids)
    for place, name in objects:
        if name not in owners or owners[name] != user:
            raise ResourceNotFound(
                f"{name[:80]!r} was not found in /v1/{place}. All keys share the provider's "
                "account, so a key may name what its `paths` reach. The operator can add "
                f'"/v1/{place}*" there.'
            )


def check_members(raw_body: bytes) -> None:
    """Raise BadRequest for a body whose server may read another member than is checked here."""
    try:
        check_names_once(raw_body, may_lead)
    except (ValueError, RecursionError) as e:
        raise BadRequest(
            f"The body cannot be checked for what it names: {str(e)[:80]!r} stands twice in an "
            "object, or it is nested too deeply. Give each member once.",
            code="invalid_json",
        ) from e


async def check_items(
    gateway: GatewayState, principal: Principal, user: str | None, names: Sequence[str]
) -> None:
    """Raise ResourceNotFound if items are another owner's. names: their ids, in an input."""
    ids = list(dict.fromkeys(names))
    if len(ids) > LOOKED_UP:
        raise BadRequest(
            f"The input names too many items by their ids; the limit is {LOOKED_UP}. Send the "
            "items themselves.",
            param="input",
        )
    try:
        owners = await _owners_of(gateway, principal.tenant, ids)
    except Unavailable:
        if not gateway.keys.own:
            raise
        # The account is the caller's own.
        return
    for name in ids:
        is_known = name in owners
        if owners.get(name) != user if is_known else not gateway.keys.own:
            raise ResourceNotFound(
                f"Item with id {name[:80]!r} not found.", code="item_not_found", param="input"
            )


async def _owners_of(gateway: GatewayState, tenant: str, ids: list[str]) -> dict[str, str | None]:
    """Return the known owners of these items and containers. Raises Unavailable."""
    if not ids:
        return {}
    try:
        await gateway.memory.wait_until_ready()
        return await gateway.responses.owners_of(tenant, ids[:LOOKED_UP])
    except StoreUnavailable as e:
        raise store_is_away() from e


def _out_of_reach(principal: Principal, body: Json) -> list[tuple[str, str]]:
    """Return the objects that a body names and the key's `paths` do not reach; the first of many.

    Raises Forbidden for a model that the key may not call.
    """
    for model in models_in(body) if "*" not in principal.models else ():
        if not is_model_allowed(principal, model):
            raise Forbidden(
                f"The request names the model {model[:80]!r} beside its own, which this key may "
                f"not call. It may call: {', '.join(principal.models)}.",
                code="model_not_allowed",
                param="model",
            )
    paths = principal.paths or ()
    objects = dict.fromkeys(objects_in(body))
    beyond = (n for n in objects if not any(fnmatchcase("/v1/" + "/".join(n), p) for p in paths))
    return list(islice(beyond, LOOKED_UP + 1))
