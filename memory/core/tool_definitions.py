"""The memory tools as they are offered to a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from memory.conversation.messages import Json
from memory.search import decay


def _tool(name: str, description: str, required: Sequence[str], **properties: Json) -> Json:
    parameters = {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


STRING, STRINGS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}


LIMIT = {"type": "integer"}


KINDS = {"type": "string", "enum": list(decay.TYPES)}


WRITING = (
    _tool(
        "archival_memory_insert",
        "Store a detail.",
        ["content"],
        content=STRING,
        tags=STRINGS,
        type=KINDS,
        importance={"type": "number", "maximum": 1},
    ),
    _tool(
        "core_memory_append",
        "Add a line to a block.",
        ["label", "content"],
        label=STRING,
        content=STRING,
    ),
    _tool(
        "core_memory_replace",
        "Replace a unique text; empty new_content deletes.",
        ["label", "old_content", "new_content"],
        label=STRING,
        old_content=STRING,
        new_content=STRING,
    ),
    _tool(
        "memory_rethink",
        "Rewrite a whole block.",
        ["label", "new_memory"],
        label=STRING,
        new_memory=STRING,
    ),
)


CURATING = (
    _tool(
        "archival_memory_update",
        "Replace a detail.",
        ["id", "content"],
        id=STRING,
        content=STRING,
    ),
    _tool(
        "memory_forget",
        "Forget by id or exact text.",
        ["id"],
        id=STRING,
    ),
)


SEARCHING = (
    _tool(
        "archival_memory_search",
        "Search details. since, until: ISO 8601.",
        ["query"],
        query=STRING,
        tags=STRINGS,
        since=STRING,
        until=STRING,
        limit=LIMIT,
    ),
    _tool(
        "conversation_search",
        "Search earlier messages, all conversations; no query: newest.",
        [],
        query=STRING,
        role=STRING,
        since=STRING,
        until=STRING,
        limit=LIMIT,
    ),
)


HABITS = {
    "memory_insert": "core_memory_append",
    "memory_replace": "core_memory_replace",
    "conversation_search_date": "conversation_search with since and until",
    "send_message": "plain text: just answer the user",
}


WRITES = frozenset(t["function"]["name"] for t in (*WRITING, *CURATING))


SEARCHES = frozenset(t["function"]["name"] for t in SEARCHING)


OURS = WRITES | SEARCHES | frozenset(HABITS)
MEMORY_TOOL_NAMES = OURS  # as others speak of them


ALL, UNNAMED, READ_ONLY = (
    sorted(found, key=lambda t: str(t["function"]["name"]))
    for found in ([*WRITING, *CURATING, *SEARCHING], [*WRITING, *SEARCHING], SEARCHING)
)


# Measured with o200k_base, of each tool alone as JSON: what every request carries is not estimated.
TOKENS = {
    "archival_memory_insert": 86,
    "archival_memory_search": 83,
    "archival_memory_update": 50,
    "conversation_search": 70,
    "core_memory_append": 52,
    "core_memory_replace": 68,
    "memory_forget": 43,
    "memory_rethink": 52,
}


_texts = {id(found): msgspec.json.encode(found).decode() for found in (ALL, UNNAMED, READ_ONLY)}


_raw = {id(tool): msgspec.Raw(msgspec.json.encode(tool)) for tool in ALL}


def tools_to_offer(client_tools: Any, *, write: bool, named: bool = True) -> list[Json]:
    """Return our tools for a request, sorted, without names that the client uses itself.

    named: whether a user is. What nobody's branches share, none of them may forget.
    """
    found = (ALL if named else UNNAMED) if write else READ_ONLY
    taken = client_names(client_tools) if client_tools else ()
    return [t for t in found if t["function"]["name"] not in taken] if taken else found


def text_of(tools: list[Json]) -> str:
    """Return our tools as JSON text; cached for complete lists, the usual case."""
    return _texts.get(id(tools)) or msgspec.json.encode(tools).decode()


def measured_tokens(tools: Sequence[Json]) -> int:
    """Return the tokens of our tools, without a vocabulary."""
    return 2 + sum([TOKENS[tool["function"]["name"]] - 1 for tool in tools])


def as_json(tools: Sequence[Json]) -> list[msgspec.Raw]:
    """Return tools as they are sent; ours are encoded once."""
    return [_raw.get(id(tool)) or msgspec.Raw(msgspec.json.encode(tool)) for tool in tools]


def client_names(client_tools: Any) -> set[str]:
    """Return the names of the client's tools, of whatever shape.

    Malformed tools are ignored; the upstream refuses them.
    """
    names: set[str] = set()
    for tool in client_tools if isinstance(client_tools, list) else ():
        if isinstance(tool, dict):
            names.add(_tool_name(tool))
    return names


def _tool_name(tool: Json) -> str:
    for member in ("function", "custom"):
        inner = tool.get(member)
        if isinstance(inner, dict) and inner:
            return str(inner.get("name") or tool.get("name"))
    return str(tool.get("name"))
