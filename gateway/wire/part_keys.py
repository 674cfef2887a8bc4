"""What the events of each API tell of the part of an answer that they belong to. Pure."""

from __future__ import annotations

from typing import Any

from gateway.wire.answer_parts import PartKey
from gateway.wire.streamed_calls import Json, read_ident

CALL = "function_call"
RESPONSES_KINDS = (  # the kind of item that a type of event belongs to, by how the type begins
    ("response.output_text.", "message"),
    ("response.refusal.", "message"),
    ("response.function_call_arguments.", CALL),
    ("response.custom_tool_call_input.", "custom_tool_call"),
    ("response.reasoning", "reasoning"),
)
CONTENT_KINDS = {"output_text": "message", "refusal": "message", "reasoning_text": "reasoning"}
TOOL_USE = "tool_call"  # any block that calls something
BLOCK_KINDS = {
    "text": "text",
    "text_delta": "text",
    "citations_delta": "text",
    "thinking": "thinking",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": TOOL_USE,
}


def responses_key(event: Json) -> PartKey:
    """Return what an event of the Responses API tells of its item."""
    item = event.get("item")
    if isinstance(item, dict):
        return item_key(item, event.get("output_index"))
    ident, name = read_ident(event.get("item_id")), event.get("name")
    return PartKey(
        _read_index(event.get("output_index")),
        (ident,) if ident else (),
        _kind_of(event),
        name if isinstance(name, str) else "",
    )


def item_key(item: Json, index: Any = None) -> PartKey:
    """Return what an item of the Responses API tells of itself."""
    idents = (read_ident(item.get("id")), read_ident(item.get("call_id")))
    kind, name = item.get("type"), item.get("name")
    return PartKey(
        _read_index(index),
        tuple(i for i in idents if i),
        kind if isinstance(kind, str) else "",
        name if isinstance(name, str) else "",
    )


def messages_key(event: Json) -> PartKey:
    """Return what an event of the Messages API tells of its content block."""
    block = event.get("content_block", event.get("delta"))
    kind = str(block.get("type")) if isinstance(block, dict) else ""
    kind = TOOL_USE if kind.endswith("tool_use") else BLOCK_KINDS.get(kind, "")
    return PartKey(_read_index(event.get("index")), (), kind)


def _kind_of(event: Json) -> str:
    """Return the kind of item that an event of the Responses API belongs to, "" for any."""
    kind = str(event.get("type"))
    for beginning, item_kind in RESPONSES_KINDS:
        if kind.startswith(beginning):
            return item_kind
    part = event.get("part")
    if kind.startswith("response.content_part.") and isinstance(part, dict):
        return CONTENT_KINDS.get(str(part.get("type")), "")
    tool = kind.split(".")[1] if kind.count(".") > 1 else ""
    return tool if tool.endswith("_call") else ""  # of a tool that the server runs


def _read_index(index: Any) -> int | None:
    return index if type(index) is int else None
