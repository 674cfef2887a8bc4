"""Claude's export: `conversations.json`, and `memories.json` with Claude's own notes. Pure.

The messages of a conversation are in order. Newer exports link each to the one before it, so that
branches are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory.formats.records import (
    BrokenItem,
    Bundle,
    member,
    name_of,
    owner_of,
    passage,
    text_member,
    text_of_parts,
    time_of,
)
from memory.formats.threads import ForeignMessage, Thread, conversation_lines

PROGRAM = "claude"
ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def read(value: Any) -> Iterator[Bundle]:
    """Yield the bundle of one conversation, or of Claude's own notes. Raises BrokenItem."""
    messages = member(value, "chat_messages")
    if isinstance(messages, list):
        thread = Thread(
            name_of(PROGRAM, value.get("uuid"), value),
            chat_messages := list(_messages(messages)),
            text_member(value, "current_leaf_message_uuid")
            or (chat_messages[-1].id if chat_messages else None),
            time_of(value.get("created_at")),
            time_of(value.get("updated_at")),
        )
        if lines := conversation_lines(thread):
            yield Bundle(lines, owner_of(member(value.get("account"), "uuid")))
    elif member(value, "conversations_memory") is not None or member(value, "project_memories"):
        yield from _notes(value)
    else:
        raise BrokenItem("it has no `chat_messages`")


def _messages(messages: list[Any]) -> Iterator[ForeignMessage]:
    previous_id: str | None = None
    known_ids = {text_member(m, "uuid") for m in messages}
    for number, message in enumerate(messages):
        ident = text_member(message, "uuid") or f"message {number}"
        linked_id = text_member(message, "parent_message_uuid")
        parent = (linked_id if linked_id in known_ids else None) if linked_id else previous_id
        text = _text(message)
        role = ""
        if text.strip():
            role = ROLES.get(text_member(message, "sender"), "")
        yield ForeignMessage(ident, parent, role, text, time_of(member(message, "created_at")))
        previous_id = ident


def _text(message: Any) -> str:
    """Return the text of a message, with the text of its attachments."""
    message_text = text_of_parts(member(message, "content")) or text_member(message, "text")
    attached = member(message, "attachments")
    texts = [
        text_member(attachment, "extracted_content")
        for attachment in (attached if isinstance(attached, list) else ())
    ]
    return "\n\n".join(text for text in (message_text, *texts) if text.strip())


def _notes(value: Any) -> Iterator[Bundle]:
    """Yield Claude's notes on its user and on projects, as passages."""
    projects = member(value, "project_memories")
    notes = [
        (text_member(value, "conversations_memory"), [PROGRAM]),
        *(
            (text, [PROGRAM, "project"])
            for text in (projects.values() if isinstance(projects, dict) else ())
            if isinstance(text, str)
        ),
    ]
    lines = [passage(text, tags=tags) for text, tags in notes if text.strip()]
    if lines:
        yield Bundle(lines, owner_of(member(value, "account_uuid")))
