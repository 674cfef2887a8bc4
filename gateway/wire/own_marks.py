"""The beginnings of opaque members that this gateway gave to clients. Pure.

SEALED: what a server of chat completions said beside the model's words, see `bridge.member_seal`.
ORPHANED: reasoning that led to a call of ours, which the client does not see. A server refuses such
reasoning without its call, so it goes upstream only as part of a hidden exchange that is put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.wire.chat import Json

SEALED = "mnemogate-chat."
ORPHANED = "mnemogate-hidden."
OWN = (SEALED, ORPHANED)
# What each of them begins with.
BYTES = b"mnemogate-"
# The id of an item that no server gave.
MADE_HERE = re.compile(r"[a-z]+_[0-9a-f]{32}_\d+")
# Of a thinking block, of a reasoning item.
OPAQUE = ("signature", "encrypted_content")
REASONING = ("thinking", "reasoning")


def has_mark(part: Any, prefixes: str | tuple[str, ...] = OWN) -> bool:
    """Tell whether a block or an item is reasoning with a mark of ours."""
    if not isinstance(part, dict) or part.get("type") not in REASONING:
        return False
    return any(str(part.get(member) or "").startswith(prefixes) for member in OPAQUE)


def has_seal(parts: Sequence[Any]) -> bool:
    """Tell whether an answer holds what a server of chat completions wants back."""
    return any(has_mark(part, SEALED) for part in parts)


def mark_orphan(part: Json, *, by_id: bool = False) -> Json:
    """Return reasoning with the mark that its call is not shown; anything else as it is.

    by_id: where nothing opaque could carry the mark, it stands alone: its server stores the item.
    """
    if part.get("type") not in REASONING:
        return part
    marked_members = {
        m: ORPHANED + part[m] for m in OPAQUE if isinstance(part.get(m), str) and part[m]
    }
    if by_id and not marked_members and not MADE_HERE.fullmatch(str(part.get("id"))):
        marked_members = {"encrypted_content": ORPHANED}
    if marked_members:
        return {**part, **marked_members}
    return part


def without_marked(body: Json, prefixes: str | tuple[str, ...]) -> Json:
    """Return a request without reasoning that has such a mark; the same where it has none."""
    for member, clean in (("messages", _clean_messages), ("input", _clean_items)):
        parts = body.get(member)
        if isinstance(parts, list):
            cleaned_parts = list(clean(parts, prefixes))
            if cleaned_parts != parts:
                body = {**body, member: cleaned_parts}
    return body


def _clean_messages(messages: Sequence[Any], prefixes: str | tuple[str, ...]) -> Iterator[Any]:
    for message in messages:
        content = None
        if isinstance(message, dict):
            content = message.get("content")
        if not isinstance(content, list):
            yield message
            continue
        remaining_blocks = [block for block in content if not has_mark(block, prefixes)]
        if remaining_blocks or not content:
            yield (
                message
                if len(remaining_blocks) == len(content)
                else {**message, "content": remaining_blocks}
            )


def without_reasoning(items: Sequence[Any], drops: Callable[[Json], bool]) -> list[Any]:
    """Return items of the Responses API without such reasoning, and what only it names."""
    return list(
        _clean(items, lambda i: isinstance(i, dict) and i.get("type") == "reasoning" and drops(i))
    )


def _clean_items(items: Sequence[Any], prefixes: str | tuple[str, ...]) -> Iterator[Any]:
    return _clean(items, lambda item: has_mark(item, prefixes))


def _clean(items: Sequence[Any], drops: Callable[[Any], bool]) -> Iterator[Any]:
    """Yield the items; what followed the reasoning is no longer named by its id.

    By that id a server would ask for the reasoning that came with it. Reasoning directly before
    what is left out goes too: it would have no follower either.
    """
    nameless = False
    # Reasoning whose follower is not known yet.
    held_reasoning: list[Any] = []
    for item in items:
        if drops(item):
            nameless = True
            held_reasoning = []
            continue
        if isinstance(item, dict) and item.get("type") == "reasoning":
            held_reasoning.append(item)
            nameless = False
            continue
        yield from held_reasoning
        held_reasoning = []
        kind = None
        if isinstance(item, dict):
            kind = item.get("type")
        is_assistant_message = kind == "message" and item.get("role") == "assistant"
        if not (is_assistant_message or str(kind).endswith("_call")):
            nameless = False
        yield {k: v for k, v in item.items() if k != "id"} if nameless else item
    yield from held_reasoning
