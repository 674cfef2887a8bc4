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
BEGIN, END = "<details", "</details>"
ASIDE = ('type="reasoning"', 'type="tool_calls"', 'type="code_interpreter"')


def read(value: Any) -> Iterator[Bundle]:
    """Yield the bundle of one chat. Raises BrokenItem."""
    chat = value["chat"] if isinstance(member(value, "chat"), dict) else value
    history = member(chat, "history")
    tree, listed = member(history, "messages"), member(chat, "messages")
    if isinstance(tree, dict) and tree:
        said = [_message(ident, message) for ident, message in tree.items()]
        current = text_member(history, "currentId")
        current = current if current in tree else said[-1].id
    elif isinstance(listed, list):
        said = list(_read_list(listed))
        current = said[-1].id if said else ""
    else:
        raise BrokenItem("it has neither `history` nor `messages`")
    thread = Thread(
        name_of(PROGRAM, value.get("id") or chat.get("id"), value),
        said,
        current,
        time_of(value.get("created_at")) or time_of(chat.get("timestamp")),
        time_of(value.get("updated_at")),
    )
    if lines := conversation_lines(thread):
        yield Bundle(lines, owner_of(value.get("user_id")))


def _read_list(messages: list[Any]) -> Iterator[ForeignMessage]:
    before = None
    for number, message in enumerate(messages):
        ident = text_member(message, "id") or f"message {number}"
        yield _message(ident, message, before)
        before = ident


def _message(ident: str, message: Any, before: str | None = None) -> ForeignMessage:
    role, text = text_member(message, "role"), text_of_parts(member(message, "content"))
    if role == "assistant":
        text = _without_asides(text)
    return ForeignMessage(
        ident,
        text_member(message, "parentId") or before,
        role if role in ("user", "assistant") and text.strip() else "",
        text,
        time_of(member(message, "timestamp")),
    )


def _without_asides(text: str) -> str:
    """Return an answer without its folded parts: reasoning, tool calls, code that was run."""
    kept, at = [], 0
    while (begin := text.find(BEGIN, at)) >= 0:
        head = text[begin : begin + 200].partition(">")[0]
        end = text.find(END, begin)
        if end < 0:
            break
        end += len(END)
        kept.append(text[at:begin] if any(a in head for a in ASIDE) else text[at:end])
        at = end
    return "".join((*kept, text[at:])).strip()
