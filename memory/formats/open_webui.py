"""Open WebUI's export of chats, of one person or of all. Pure.

A chat has a tree of messages (`history`), with the end of the branch that is shown. Older exports
only have a list.
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
    text_member,
    text_of_parts,
    time_of,
)
from memory.formats.threads import ForeignMessage, Thread, conversation_lines

PROGRAM = "openwebui"
BEGIN = "<details"
END = "</details>"
ASIDE = ('type="reasoning"', 'type="tool_calls"', 'type="code_interpreter"')


def read(value: Any) -> Iterator[Bundle]:
    """Yield the bundle of one chat. Raises BrokenItem."""
    if isinstance(member(value, "chat"), dict):
        chat = value["chat"]
    else:
        chat = value
    history = member(chat, "history")
    tree = member(history, "messages")
    message_list = member(chat, "messages")
    if isinstance(tree, dict) and tree:
        messages = [_message(ident, message) for ident, message in tree.items()]
        current_id = text_member(history, "currentId")
        if current_id not in tree:
            current_id = messages[-1].id
    elif isinstance(message_list, list):
        messages = list(_read_list(message_list))
        current_id = messages[-1].id if messages else ""
    else:
        raise BrokenItem("it has neither `history` nor `messages`")
    thread = Thread(
        name_of(PROGRAM, value.get("id") or chat.get("id"), value),
        messages,
        current_id,
        time_of(value.get("created_at")) or time_of(chat.get("timestamp")),
        time_of(value.get("updated_at")),
    )
    if lines := conversation_lines(thread):
        yield Bundle(lines, owner_of(value.get("user_id")))


def _read_list(messages: list[Any]) -> Iterator[ForeignMessage]:
    previous_id = None
    for number, message in enumerate(messages):
        ident = text_member(message, "id") or f"message {number}"
        yield _message(ident, message, previous_id)
        previous_id = ident


def _message(ident: str, message: Any, previous_id: str | None = None) -> ForeignMessage:
    role = text_member(message, "role")
    text = text_of_parts(member(message, "content"))
    if role == "assistant":
        text = _without_asides(text)
    return ForeignMessage(
        ident,
        text_member(message, "parentId") or previous_id,
        role if role in ("user", "assistant") and text.strip() else "",
        text,
        time_of(member(message, "timestamp")),
    )


def _without_asides(text: str) -> str:
    """Return an answer without its folded parts: reasoning, tool calls, code that was run."""
    kept_parts = []
    part_start = 0
    while (begin := text.find(BEGIN, part_start)) >= 0:
        head = text[begin : begin + 200].partition(">")[0]
        end = text.find(END, begin)
        if end < 0:
            break
        end += len(END)
        kept_parts.append(
            text[part_start:begin] if any(a in head for a in ASIDE) else text[part_start:end]
        )
        part_start = end
    return "".join((*kept_parts, text[part_start:])).strip()
