"""The memory tools as they are offered to a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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


STRING = {"type": "string"}
STRINGS = {"type": "array", "items": {"type": "string"}}
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

# Of the argument `share`, where there is a layer that may be written.
SHARE_DESCRIPTION = "For all who read this; never what is private."
SHARE_TOKENS = 24

HABITS = {
    "memory_insert": "core_memory_append",
    "memory_replace": "core_memory_replace",
    "conversation_search_date": "conversation_search with since and until",
    "send_message": "plain text: just answer the user",
}

WRITES = frozenset(t["function"]["name"] for t in (*WRITING, *CURATING))
SEARCHES = frozenset(t["function"]["name"] for t in SEARCHING)
OURS = WRITES | SEARCHES | frozenset(HABITS)
# As others speak of them.
MEMORY_TOOL_NAMES = OURS

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
_raw_lists = {id(tools): [_raw[id(tool)] for tool in tools] for tools in (ALL, UNNAMED, READ_ONLY)}


def tools_to_offer(
    client_tools: Any, *, write: bool, named: bool = True, share: tuple[str, ...] = ()
) -> list[Json]:
    """Return our tools for a request, sorted, without names that the client uses itself.

    named: whether a user is. What nobody's branches share, none of them may forget. share: the
    layers into which a passage may be put.
    """
    offers = (ALL if named else UNNAMED) if write else READ_ONLY
    if write and share:
        offers = _with_share(share)
    client_tool_names = client_names(client_tools) if client_tools else ()
    if client_tool_names:
        return [t for t in offers if t["function"]["name"] not in client_tool_names]
    return offers


@lru_cache(4)
def usual_tools(write: bool, named: bool) -> tuple[list[Json], str, int]:
    """Return our tools where the client has none, their JSON text and its measured tokens."""
    tools = (ALL if named else UNNAMED) if write else READ_ONLY
    return tools, text_of(tools), measured_tokens(tools)


@lru_cache(256)
def _with_share(labels: tuple[str, ...]) -> list[Json]:
    """Return all tools, of which the one that stores passages takes a layer."""
    return [_take_layer(tool, labels) if tool is ALL[0] else tool for tool in ALL]


def _take_layer(tool: Json, labels: Sequence[str]) -> Json:
    function = tool["function"]
    parameters = function["parameters"]
    share = {"type": "string", "enum": list(labels), "description": SHARE_DESCRIPTION}
    properties = {**parameters["properties"], "share": share}
    return {
        **tool,
        "function": {**function, "parameters": {**parameters, "properties": properties}},
    }


def _share_tokens(tool: Json) -> int:
    """Return about as many tokens as the layers of a tool take."""
    share = tool["function"]["parameters"]["properties"].get("share")
    if share is None:
        return 0
    return SHARE_TOKENS + sum(4 + len(label) // 3 for label in share["enum"])


def text_of(tools: list[Json]) -> str:
    """Return our tools as JSON text; cached for complete lists, the usual case."""
    return _texts.get(id(tools)) or msgspec.json.encode(tools).decode()


def measured_tokens(tools: Sequence[Json]) -> int:
    """Return the tokens of our tools, without a vocabulary."""
    own_tokens = 2 + sum([TOKENS[tool["function"]["name"]] - 1 for tool in tools])
    if tools and id(tools[0]) not in _raw:
        return own_tokens + _share_tokens(tools[0])
    return own_tokens


class EncodedTool(dict[str, Any]):
    """A tool that nobody changes, with its JSON text, so that no request encodes it again."""

    def __init__(self, definition: Json) -> None:
        super().__init__(definition)
        self.json = msgspec.Raw(msgspec.json.encode(definition))


def as_json(tools: Sequence[Json]) -> list[msgspec.Raw]:
    """Return tools as they are sent; ours are encoded once."""
    known = _raw_lists.get(id(tools))
    if known is not None:
        return known
    return [
        tool.json
        if isinstance(tool, EncodedTool)
        else _raw.get(id(tool)) or msgspec.Raw(msgspec.json.encode(tool))
        for tool in tools
    ]


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
        definition = tool.get(member)
        if isinstance(definition, dict) and definition:
            return str(definition.get("name") or tool.get("name"))
    return str(tool.get("name"))
