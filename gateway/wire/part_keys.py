"""What the events of each API tell of the part of an answer that they belong to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.wire.answer_parts import MAX_PARTS, PartKey
from gateway.wire.lone_surrogates import encode_json
from gateway.wire.streamed_calls import Json, read_ident, read_index
from memory.conversation.foreign_json import decode_foreign

CALL = "function_call"
# An item and a block of it.
REASONING, THINKING = "reasoning", "thinking"
# The kind of item that a type of event belongs to, by how the type begins.
RESPONSES_KINDS = (
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
# Any block that calls something.
TOOL_USE = "tool_call"
BLOCK_KINDS = {
    "text": "text",
    "text_delta": "text",
    "citations_delta": "text",
    "thinking": THINKING,
    "thinking_delta": THINKING,
    "signature_delta": THINKING,
    "input_json_delta": TOOL_USE,
}


def readable_event(event: Json) -> Json:
    """Return an event of the Responses API whose items tell their type; the same where all do."""
    member, read = ("item", readable_item) if "item" in event else ("response", readable_response)
    value = event.get(member)
    if not isinstance(value, dict) or (readable_value := read(value)) is value:
        return event
    return {**event, member: readable_value}


def readable_response(response: Json) -> Json:
    """Return a response whose items tell their type; the same where all do."""
    return _readable_list(response, "output", readable_item)


def readable_item(item: Json) -> Json:
    """Return an item with its type, and a call with its arguments as a text.

    A type that cannot be read is what the item's members show it to be.
    """
    if isinstance(item.get("arguments"), dict):
        item = {**item, "arguments": encode_json(item["arguments"]).decode()}
    if _is_told(item.get("type")) or not (kind := _shown_kind(item)):
        return item
    return {**item, "type": kind}


def readable_block_event(event: Json) -> Json:
    """Return an event of the Messages API whose block tells its type; the same where it does."""
    block = event.get("content_block")
    if not isinstance(block, dict) or (readable_value := readable_block(block)) is block:
        return event
    return {**event, "content_block": readable_value}


def readable_message(message: Json) -> Json:
    """Return a message whose blocks tell their type; the same where all do."""
    return _readable_list(message, "content", readable_block)


def readable_block(block: Json) -> Json:
    """Return a block with its type, and a call with its input as an object.

    A type that cannot be read is what the block's members show it to be.
    """
    if isinstance(block.get("input"), str):
        block = {**block, "input": _read_input(block["input"])}
    if _is_told(block.get("type")):
        return block
    if isinstance(block.get("name"), str) and ("input" in block or "id" in block):
        return {**block, "type": "tool_use"}
    kind = next((k for k in ("text", THINKING) if isinstance(block.get(k), str)), "")
    if kind:
        return {**block, "type": kind}
    return block


def _read_input(text: str) -> Any:
    """Return the object that a text is; any other text as it is."""
    if not text or text.isspace():
        return {}
    try:
        value = decode_foreign(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    if isinstance(value, dict):
        return value
    return text


def _readable_list(reply: Json, member: str, read: Callable[[Json], Json]) -> Json:
    parts = reply.get(member)
    if not isinstance(parts, list) or len(parts) > MAX_PARTS:
        return reply
    readable_parts = [read(p) if isinstance(p, dict) else p for p in parts]
    if all(a is b for a, b in zip(parts, readable_parts, strict=True)):
        return reply
    return {**reply, member: readable_parts}


def _is_told(kind: Any) -> bool:
    return isinstance(kind, str) and bool(kind.strip())


def _shown_kind(item: Json) -> str:
    """Return what the members of an item show it to be, "" for nothing known."""
    if "arguments" in item:
        return CALL
    if "input" in item and "name" in item:
        return "custom_tool_call"
    if isinstance(item.get("content"), list) and "role" in item:
        return "message"
    if "summary" in item:
        return REASONING
    return ""


def responses_key(event: Json) -> PartKey:
    """Return what an event of the Responses API tells of its item."""
    item = event.get("item")
    if isinstance(item, dict):
        return item_key(item, event.get("output_index"))
    index = event.get("output_index")
    ident = event.get("item_id")
    name = event.get("name")
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
    kind = item.get("type")
    name = item.get("name")
    return PartKey(
        read_index(index),
        tuple(i for i in idents if i),
        kind if isinstance(kind, str) else "",
        name if isinstance(name, str) else "",
    )


def messages_key(event: Json) -> PartKey:
    """Return what an event of the Messages API tells of its content block."""
    index = event.get("index")
    block = event.get("delta") or event.get("content_block")
    kind = ""
    if isinstance(block, dict):
        name = block.get("type")
        kind = ""
        if isinstance(name, str):
            kind = BLOCK_KINDS.get(name, "")
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
    tool = ""
    if kind.count(".") > 1:
        tool = kind.split(".")[1]
    # Of a tool that the server runs.
    return tool if tool.endswith("_call") else ""
