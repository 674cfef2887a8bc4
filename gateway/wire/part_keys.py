"""What the events of each API tell of the part of an answer that they belong to. Pure."""

from __future__ import annotations

from typing import Any

from gateway.wire.answer_parts import PartKey
from gateway.wire.streamed_calls import Json, read_ident, read_index

CALL = "function_call"
REASONING, THINKING = "reasoning", "thinking"  # an item and a block of it
RESPONSES_KINDS = (  # the kind of item that a type of event belongs to, by how the type begins
    ("response.output_text.", "message"),
    ("response.refusal.", "message"),
    ("response.function_call_arguments.", CALL),
    ("response.custom_tool_call_input.", "custom_tool_call"),
    ("response.reasoning", REASONING),
)
# The same for the events that streams consist of, so that each costs one look.
EVENT_KINDS = {
    "response.output_text.delta": "message",
    "response.function_call_arguments.delta": CALL,
    "response.custom_tool_call_input.delta": "custom_tool_call",
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
}
CONTENT_KINDS = {"output_text": "message", "refusal": "message", "reasoning_text": REASONING}
TOOL_USE = "tool_call"  # any block that calls something
BLOCK_KINDS = {
    "text": "text",
    "text_delta": "text",
    "citations_delta": "text",
    "thinking": THINKING,
    "thinking_delta": THINKING,
    "signature_delta": THINKING,
    "input_json_delta": TOOL_USE,
}


def responses_key(event: Json) -> PartKey:
    """Return what an event of the Responses API tells of its item."""
    item = event.get("item")
    if isinstance(item, dict):
        return item_key(item, event.get("output_index"))
    index, ident, name = event.get("output_index"), event.get("item_id"), event.get("name")
    if type(ident) is not str or not ident:
        ident = read_ident(ident)
    return PartKey(
        index if type(index) is int else read_index(index),
        (ident,) if ident else (),
        EVENT_KINDS.get(str(event.get("type"))) or _kind_of(event),
        name if isinstance(name, str) else "",
    )


def item_key(item: Json, index: Any = None) -> PartKey:
    """Return what an item of the Responses API tells of itself."""
    idents = (read_ident(item.get("id")), read_ident(item.get("call_id")))
    kind, name = item.get("type"), item.get("name")
    return PartKey(
        read_index(index),
        tuple(i for i in idents if i),
        kind if isinstance(kind, str) else "",
        name if isinstance(name, str) else "",
    )


def messages_key(event: Json) -> PartKey:
    """Return what an event of the Messages API tells of its content block."""
    index, block = event.get("index"), event.get("delta") or event.get("content_block")
    kind = ""
    if isinstance(block, dict):
        name = block.get("type")
        kind = BLOCK_KINDS.get(name, "") if isinstance(name, str) else ""
        if not kind and str(name).endswith("tool_use"):
            kind = TOOL_USE
    return PartKey(index if type(index) is int else read_index(index), (), kind)


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
