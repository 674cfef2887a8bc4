"""The tools that belong to every toolbox: read on in a long result, find and call one of many."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from gateway.tools.registry import ToolRegistry, definition_of
from gateway.wire.chat import Json
from memory import MEMORY_TOOL_NAMES, TokenCounter

RESULT_OPEN = "result_open"
TOOL_SEARCH = "tool_search"
TOOL_CALL = "tool_call"
STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


DEFINITIONS: dict[str, Json] = {
    RESULT_OPEN: definition_of(
        RESULT_OPEN,
        "Read on in a long tool result, or show its lines that hold a text.",
        _object(["id"], id=STRING, offset={**INTEGER, "minimum": 0, "default": 0}, find=STRING),
    ),
    TOOL_SEARCH: definition_of(
        TOOL_SEARCH,
        "Find tools by what they do. More tools exist than are listed here: search before you say "
        "that something cannot be done.",
        _object(["query"], query=STRING, limit={**INTEGER, "minimum": 1, "maximum": 10}),
    ),
    TOOL_CALL: definition_of(
        TOOL_CALL,
        "Call a tool that tool_search found.",
        _object(["name", "arguments"], name=STRING, arguments={"type": "object"}),
    ),
}


class OwnTool(msgspec.Struct, frozen=True):
    """One of these tools. digest: of its definition."""

    definition: Json
    digest: str
    tokens: int
    byte_count: int

    @property
    def parameters(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.definition["function"]["parameters"]
        return schema


def _measure(definition: Json) -> OwnTool:
    text = msgspec.json.encode(definition)
    digest = hashlib.sha256(text).hexdigest()[:32]
    return OwnTool(definition, digest, TokenCounter().text(text.decode()), len(text))


OWN_TOOLS = {name: _measure(definition) for name, definition in DEFINITIONS.items()}


def owned_names(registry: ToolRegistry, tenant: str) -> frozenset[str]:
    """Return the names of all tools that are run here: of memory, ours, and the operator's."""
    return MEMORY_TOOL_NAMES.union(registry.names(tenant), OWN_TOOLS)
