"""Checks who owns the objects that a request names: items, files, vector stores, containers.

With managed keys all tenants share the provider's account, so the provider would find another
tenant's object. The owners of items are known here, and those of containers that an answer
mentioned. Other stored objects may only be named by keys whose `paths` allow them; to any other key
they are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from gateway.auth.authenticator import Principal
from gateway.chat import kept_responses
from gateway.chat.request import TurnInput
from gateway.errors import BadRequest, ResourceNotFound
from gateway.http.json_thread import run_by_weight
from gateway.state import GatewayState
from gateway.storage.responses import LOOKED_UP
from gateway.wire.chat import Json
from gateway.wires.chat.format import CHAT
from gateway.wires.responses.format import input_items
from memory import StoreUnavailable

# Members whose text, or list of texts, names what is stored below a path of the provider's.
PLACES = {
    "file_id": "files",
    "file_ids": "files",
    "vector_store_ids": "vector_stores",
    "container": "containers",
    "container_id": "containers",
    "skill_id": "skills",
}
CONTAINERS = "containers"  # those that answers told of are known, as items are
LOOKED_INTO = ("input", "items", "messages", "tools", "container")
# A body without any of these names nothing. An escape may spell a member in other characters.
ESCAPE = b"\\u00"
NAMING = (ESCAPE, *(f'"{name}"'.encode() for name in PLACES))
REFERRING = (ESCAPE, b"item_reference")
# What a client's own tools are given has members of their own making.
OF_TOOLS = frozenset({"parameters", "input_schema", "input_examples"})
MAX_DEPTH = 24  # nothing that the APIs define lies deeper
PUBLIC = "anthropic"  # the type of a skill that is the provider's own


async def check_stored_names(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request; it is read whole if it names stored objects.

    Raises ResourceNotFound for objects that the caller may not name, BadRequest, Unavailable.
    """
    if request.principal.paths is None or not _holds_any(request.raw, NAMING):
        return request
    request = await kept_responses.read_input(request)
    body = request.body
    if request.wire is CHAT:  # whose messages are not decoded
        body = await run_by_weight(request.raw, kept_responses.read_whole, request.raw)
    await check_names(gateway, request.principal, request.user, request.raw, body)
    return request


async def check_names(
    gateway: GatewayState, principal: Principal, user: str | None, raw: bytes, body: Json
) -> None:
    """Raise ResourceNotFound if a body names an object that is not the caller's."""
    if (paths := principal.paths) is None:
        return
    found = await run_by_weight(raw, _names_in, body)
    named = [
        (place, name)
        for place, name in found
        if not any(fnmatchcase(f"/v1/{place}/{name}", pattern) for pattern in paths)
    ]
    told = [name for place, name in named if place == CONTAINERS]
    owners = await _owners_of(gateway, principal.tenant, told)
    for place, name in named:
        if name not in owners or owners[name] != user:
            raise ResourceNotFound(
                f"{name[:80]!r} was not found in /v1/{place}. All keys share the provider's "
                "account, so a key may name what its `paths` reach. The operator can add "
                f'"/v1/{place}*" there.'
            )


async def check_references(gateway: GatewayState, request: TurnInput) -> TurnInput:
    """Return the request; it is read whole if it names items by their ids.

    A caller with an account of their own is guarded by the provider, so items that are unknown here
    are theirs. Raises ResourceNotFound for another owner's item, BadRequest, Unavailable.
    """
    account = gateway.keys.own
    if (account and not request.uses_memory) or not _holds_any(request.raw, REFERRING):
        return request
    request = await kept_responses.read_input(request)
    ids = list(dict.fromkeys(kept_responses.references(input_items(request.body))))
    if not ids:
        return request
    if len(ids) > LOOKED_UP:
        raise BadRequest(
            f"The input names {len(ids)} items by their ids; the limit is {LOOKED_UP}. Send the "
            "items themselves.",
            param="input",
        )
    owners = await _owners_of(gateway, request.principal.tenant, ids)
    for name in ids:
        known = name in owners
        if owners.get(name) != request.user if known else not account:
            raise ResourceNotFound(
                f"Item with id {name[:80]!r} not found.", code="item_not_found", param="input"
            )
    return request


async def _owners_of(gateway: GatewayState, tenant: str, ids: list[str]) -> dict[str, str | None]:
    """Return the known owners of these items and containers. Raises Unavailable."""
    if not ids:
        return {}
    try:
        await gateway.memory.wait_until_ready()
        return await gateway.responses.owners_of(tenant, ids[:LOOKED_UP])
    except StoreUnavailable as e:
        raise kept_responses.store_is_away() from e


def _holds_any(raw: bytes, marks: tuple[bytes, ...]) -> bool:
    return any(mark in raw for mark in marks)


def _names_in(body: Json) -> list[tuple[str, str]]:
    """Return the objects that a body names: their path and their name."""
    return [x for m in LOOKED_INTO for x in _walk(body.get(m), 0, m)]


def _walk(value: Any, depth: int, member: str) -> Iterator[tuple[str, str]]:
    place = PLACES.get(member)
    if isinstance(value, str):
        if place is not None:
            yield place, value
    elif depth > MAX_DEPTH:
        raise BadRequest(f"The body is nested deeper than {MAX_DEPTH} levels.")
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, depth + 1, member)
    elif isinstance(value, dict):
        yield from _walk_object(value, depth, member)


def _walk_object(value: Json, depth: int, member: str) -> Iterator[tuple[str, str]]:
    if member == "container" and isinstance(value.get("id"), str):
        yield PLACES[member], value["id"]
    kind = value.get("type")
    for name, inner in value.items():
        given = name in OF_TOOLS or (name == "input" and str(kind).endswith("tool_use"))
        if not given and not (name == "skill_id" and kind == PUBLIC):
            yield from _walk(inner, depth + 1, name)
