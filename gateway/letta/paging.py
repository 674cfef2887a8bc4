"""Pages by the ids of their items: `after` and `before` follow the order that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable
from gateway.wire.chat import Json

USUAL = 50
MAX_LIMIT = 1000
ORDERS = ("asc", "desc")
T = TypeVar("T")


def order_of(call: LettaCall, default: str) -> str:
    """Return `asc` or `desc`. Raises Unprocessable."""
    if ascending := call.word("ascending"):
        default = "asc" if ascending.lower() == "true" else "desc"
    order = call.word("order") or default
    if order not in ORDERS:
        raise Unprocessable(f"`order` is {order[:40]!r}: use asc or desc.", param="order")
    return order


def page_of(call: LettaCall, items: Sequence[Json], default_limit: int = USUAL) -> list[Json]:
    """Return the page of items that a query asks for, in their order or in the opposite one.

    A page behind an item that is not there is empty.
    """
    ordered_items = list(items)
    if order_of(call, "asc") == "desc":
        ordered_items.reverse()
    return cut_page(call, ordered_items, [item["id"] for item in ordered_items], default_limit)


def cut_page(
    call: LettaCall, items: Sequence[T], ids: Sequence[str], default_limit: int
) -> list[T]:
    """Return the items between `after` and `before`, at most `limit` of them.

    With `before` alone they are those next to it.
    """
    after = call.word("after")
    before = call.word("before")
    limit = call.number("limit", default_limit, MAX_LIMIT)
    begin = 0
    end = len(items)
    if after:
        if after in ids:
            begin = ids.index(after) + 1
        else:
            begin = end
    if before:
        if before in ids:
            end = ids.index(before)
        else:
            end = begin
    if before and not after:
        begin = max(begin, end - limit)
    return list(items[begin:end][:limit])
