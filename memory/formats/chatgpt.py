"""ChatGPT's export: `conversations.json`, or the numbered files of a large account. Pure.

Each conversation is a tree of messages (`mapping`) with the end of the branch that is shown
(`current_node`). What people and the assistant said is kept, and the transcripts of what was
spoken. Instructions, thoughts, tool calls and what tools answered are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory.formats.records import (
    BrokenItem,
    Bundle,
    member,
    name_of,
    text_member,
    text_of_parts,
    time_of,
)
from memory.formats.threads import ForeignMessage, Thread, conversation_lines

PROGRAM = "chatgpt"
KEPT = ("text", "multimodal_text", "")


def read(value: Any) -> Iterator[Bundle]:
    """Yield the bundle of one conversation. Raises BrokenItem."""
    mapping = member(value, "mapping")
    if not isinstance(mapping, dict):
        raise BrokenItem("it has no `mapping` of messages")
    current_node = text_member(value, "current_node") or None
    thread = Thread(
        name_of(PROGRAM, value.get("conversation_id") or value.get("id"), value),
        [_message(ident, node) for ident, node in mapping.items()],
        current_node if current_node in mapping else _newest(mapping),
        time_of(value.get("create_time")),
        time_of(value.get("update_time")),
    )
    if lines := conversation_lines(thread):
        yield Bundle(lines)


def _newest(mapping: dict[str, Any]) -> str | None:
    """Return the newest message, where the export does not name the branch that was shown."""
    times = {
        ident: time_of(member(member(node, "message"), "create_time")) or 0.0
        for ident, node in mapping.items()
    }
    return max(times, key=times.__getitem__, default=None)


def _message(ident: str, node: Any) -> ForeignMessage:
    parent = text_member(node, "parent") or None
    message = member(node, "message")
    role = text_member(member(message, "author"), "role")
    text = ""
    if role in ("user", "assistant"):
        text = _text(message)
    return ForeignMessage(
        ident,
        parent,
        role if text.strip() else "",
        text,
        time_of(member(message, "create_time")),
    )


def _text(message: Any) -> str:
    """Return the text of a message; "" if it is not part of the conversation."""
    content = member(message, "content")
    is_hidden = member(member(message, "metadata"), "is_visually_hidden_from_conversation")
    is_aside = text_member(message, "recipient") not in ("", "all")
    if is_hidden or is_aside or text_member(content, "content_type") not in KEPT:
        return ""
    return text_of_parts(member(content, "parts"))
