"""mem0's memories, as `get_all` returns them: a list, `{"results": [...]}`, or one a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory.formats.records import (
    BrokenItem,
    Bundle,
    iso_time,
    member,
    own_id,
    owner_of,
    passage,
    text_member,
    time_of,
)

PROGRAM = "mem0"


def parts(value: Any) -> list[Any]:
    """Return the memories of a response, or the single one that it is."""
    for name in ("results", "memories"):
        if isinstance(memories := member(value, name), list):
            return memories
    return [value]


def read(value: Any) -> Iterator[Bundle]:
    """Yield the bundle of one memory. Raises BrokenItem."""
    text = text_member(value, "memory") or text_member(value, "data") or text_member(value, "text")
    if not text:
        raise BrokenItem("it has no `memory`")
    categories = member(value, "categories")
    category_list = categories if isinstance(categories, list) else ()
    tags = [t[:256] for t in category_list if isinstance(t, str)][:64]
    ident = text_member(value, "id")
    line = passage(
        text,
        tags=tags,
        id=own_id("passage", ident) if ident else None,
        created_at=iso_time(time_of(member(value, "created_at"))),
    )
    yield Bundle([line], owner_of(member(value, "user_id")))
