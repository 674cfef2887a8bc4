"""Input items that are named by their ids alone. Pure.

Only a server that stores an item can take it so. It may also want what it gave the item with, which
this gateway hides from clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.wire.chat import Json
from gateway.wire.own_marks import without_reasoning

REFERENCE = "item_reference"
# What a body holds that names items by their ids; an escape may spell a member.
REFERRING = (REFERENCE.encode(), b"\\u00")
IDENT = re.compile(r"[\w.-]+")
# What a call may stand in.
CHAINED = ("previous_response_id", "conversation")


def is_reference(item: Any) -> bool:
    """Tell whether an item is named by its id alone. Its type may be left out, as OpenAI has it."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and "id" in item and "role" not in item)


def references(items: Iterable[Any]) -> list[str]:
    """Return the ids of items that are named by their ids alone."""
    return [str(i.get("id")) for i in items if is_reference(i)]


def is_said(item: Any) -> bool:
    """Tell whether an item is a model's words or call, which may need the reasoning before it."""
    kind = ""
    if isinstance(item, dict):
        kind = str(item.get("type"))
    return (kind == "message" and item.get("role") == "assistant") or kind.endswith("_call")


def without_refused(body: Json, refusal: str, *, every: bool) -> Json | None:
    """Return a request without the items that a server refused by their ids.

    None where it names no such item, or nothing would be left. refusal: what the server said.
    every: all references are left out, also those that it does not name.
    """
    items = body.get("input")
    if not isinstance(items, list):
        return None
    refused_ids = set(IDENT.findall(refusal))
    item_ids = {str(i.get("id")) for i in items if isinstance(i, dict)} & refused_ids
    if not item_ids:
        return None
    remaining_items = [
        i for i in items if not (is_reference(i) and (every or str(i.get("id")) in item_ids))
    ]
    remaining_items = without_reasoning(
        remaining_items, lambda item: str(item.get("id")) in item_ids
    )
    remaining_items = [
        _nameless(i) if is_said(i) and str(i.get("id")) in item_ids else i for i in remaining_items
    ]
    if not any(body.get(member) for member in CHAINED):
        remaining_items = _without_unasked(remaining_items)
    if remaining_items and remaining_items != items:
        return {**body, "input": remaining_items}
    return None


def _nameless(item: Json) -> Json:
    return {k: v for k, v in item.items() if k != "id"}


def _without_unasked(items: Sequence[Any]) -> list[Any]:
    """Return items without outputs whose calls were left out."""
    call_ids = {str(i.get("call_id")) for i in items if is_said(i)}
    # Any of these may be the call.
    has_references = any(map(is_reference, items))
    return [
        i for i in items if has_references or not _is_output(i) or str(i.get("call_id")) in call_ids
    ]


def _is_output(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_call_output")
