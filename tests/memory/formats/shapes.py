"""Exports of other programs, as small as they can be, in their vendors' own shapes."""

from __future__ import annotations

from typing import Any

AT = 1_700_000_000.0


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def gpt_node(ident: str, parent: str | None, role: str, text: Any, **more: Any) -> dict[str, Any]:
    """One node of ChatGPT's mapping. text: a text, or the parts."""
    parts = [text] if isinstance(text, str) else text
    content = {"content_type": more.pop("content_type", "text"), "parts": parts}
    message = {
        "id": ident,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": AT + len(ident),
        "content": content,
        "recipient": "all",
        "metadata": {},
        **more,
    }
    return {"id": ident, "message": message, "parent": parent, "children": []}


def gpt(nodes: list[dict[str, Any]], current: str | None, number: int = 1) -> dict[str, Any]:
    """One conversation of ChatGPT's export."""
    return {
        "title": "Tea",
        "create_time": AT,
        "update_time": AT + 60,
        "mapping": {n["id"]: n for n in nodes},
        "current_node": current,
        "conversation_id": uuid(number),
    }


def chat_of(number: int, turns: int = 1) -> dict[str, Any]:
    """A plain conversation of ChatGPT's."""
    nodes = [{"id": "root", "message": None, "parent": None, "children": []}]
    for i in range(2 * turns):
        role = "assistant" if i % 2 else "user"
        nodes.append(gpt_node(f"m{i}", nodes[-1]["id"], role, f"{role} {number}.{i}"))
    return gpt(nodes, nodes[-1]["id"], number)


def claude_message(number: int, sender: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "uuid": uuid(number),
        "text": text,
        "content": [{"type": "text", "text": text}],
        "sender": sender,
        "created_at": f"2026-03-01T10:00:{number:02}.000000Z",
        "attachments": [],
        "files": [],
        **more,
    }


def claude_chat(messages: list[dict[str, Any]], account: str = "ann") -> dict[str, Any]:
    return {
        "uuid": uuid(77),
        "name": "Tea",
        "created_at": "2026-03-01T10:00:00Z",
        "updated_at": "2026-03-01T11:00:00Z",
        "account": {"uuid": account},
        "chat_messages": messages,
    }
