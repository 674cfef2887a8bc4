"""Input items that are named by their ids alone: what is known of them, and how they go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.owned_responses import store_is_away
from gateway.chat.intake.request import TurnInput
from gateway.errors import BadRequest
from gateway.state import GatewayState
from gateway.wire.item_references import is_reference, is_said, references
from gateway.wire.own_marks import MADE_HERE, ORPHANED, has_mark
from memory import StoreUnavailable


def names_any(items: Iterable[Any]) -> bool:
    """Tell whether an item is named by its id alone."""
    return any(map(is_reference, items))


async def tell_named(gateway: GatewayState, request: TurnInput, items: list[Any]) -> TurnInput:
    """Return a request with the memory's view of items that it only names by their ids.

    Those that their server cannot take so are sent in full. items: its input.
    """
    full_items = await find_known(gateway, request.principal.tenant, request.user, items)
    if full_items is items:
        return request
    facts = request.whole_facts
    if facts is not None:
        is_heavy = facts.history.heavy
        summaries = gateway.clients.find(request.headers).summaries
        facts = RESPONSES.facts({**request.body, "input": full_items}, summaries)
        facts.history.heavy = is_heavy
    body = request.body
    if (sent_items := tell_items(items, full_items)) != items:
        body = {**body, "input": sent_items}
    return msgspec.structs.replace(request, body=body, whole_facts=facts)


async def find_known(
    gateway: GatewayState, tenant: str, user: str | None, items: list[Any]
) -> list[Any]:
    """Return items as `resolve` does; `items` itself while the store is away.

    Then their server is asked.
    """
    try:
        return await resolve(gateway, tenant, user, items)
    except StoreUnavailable:
        return items


async def resolve(
    gateway: GatewayState, tenant: str, user: str | None, items: list[Any]
) -> list[Any]:
    """Return items, with what is known of those that are named by their ids alone.

    Returns `items` itself where nothing is. Raises StoreUnavailable.
    """
    ids = references(items)
    if not ids:
        return items
    await gateway.memory.wait_until_ready()
    known_items = await gateway.responses.items_of(tenant, user, ids)
    if not known_items:
        return items
    return [known_items.get(str(i.get("id")), i) if is_reference(i) else i for i in items]


async def resolve_all(
    gateway: GatewayState, tenant: str, user: str | None, items: list[Any]
) -> list[Any]:
    """Return items, each in full. Raises BadRequest for one that is not known, and Unavailable."""
    try:
        resolved_items = await resolve(gateway, tenant, user, items)
    except StoreUnavailable as e:
        raise store_is_away() from e
    if missing_ids := references(resolved_items):
        raise BadRequest(
            f"The gateway does not have item {missing_ids[0][:80]!r}, and cannot ask this model's "
            "server for it. It keeps the items of responses that are stored with memory on. Send "
            "the item itself instead of an `item_reference`.",
            code="item_not_found",
            param="input",
        )
    return resolved_items


def tell_items(items: Sequence[Any], full_items: Sequence[Any]) -> list[Any]:
    """Return items with those in full that their server cannot take by their ids.

    It has none of that id, or wants the hidden call that reasoning led to beside it. What follows
    such reasoning would be refused without it. full_items: the items, as far as they are known.
    """
    return list(_choose_forms(items, full_items))


def _choose_forms(items: Sequence[Any], full_items: Sequence[Any]) -> Iterator[Any]:
    is_behind_orphan = False
    for item, full_item in zip(items, full_items, strict=True):
        if has_mark(full_item, ORPHANED):
            is_behind_orphan = True
        elif not is_said(full_item):
            is_behind_orphan = False
        is_our_id = isinstance(full_item, dict) and MADE_HERE.fullmatch(str(full_item.get("id")))
        yield full_item if is_our_id or is_behind_orphan else item
