"""The memory tools as MCP clients see and call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.management.context import translate_errors
from gateway.mcp.caller import DoorCaller
from gateway.mcp.protocol import RpcRequest, bad_params, text_of
from gateway.wire.chat import Json, decode
from memory import Memory
from memory.management import offered_tools, shown_memory, tool_calls
from memory.management.shown_memory import SHOW
from memory.management.tool_calls import SEARCHES, WRITES, CallResult

NOBODY = (
    "Error: nobody is named, so there is no memory to use. Name the user with the header "
    "X-Memory-User, or use the address /u/USER/mcp."
)
TITLES = {
    "archival_memory_insert": "Store a detail",
    "archival_memory_search": "Search stored details",
    "archival_memory_update": "Correct a stored detail",
    "conversation_search": "Search earlier conversations",
    "core_memory_append": "Add a line to a memory block",
    "core_memory_replace": "Replace a text in a memory block",
    "memory_forget": "Forget something",
    "memory_rethink": "Rewrite a memory block",
    "memory_show": "Show the memory",
}
DESCRIPTIONS = {
    "archival_memory_insert": "Store a detail about the user that may matter later: a fact, a "
    "preference, a decision. One fact a call, in a sentence that stands alone.",
    "archival_memory_search": "Search the details that were stored about the user. Use it before "
    "you answer what depends on them. since and until take ISO 8601 dates.",
    "archival_memory_update": "Replace the wording of a stored detail, by the id of a search hit. "
    "The older wording is kept for undo.",
    "conversation_search": "Search earlier messages of the user and the assistant, in all "
    "conversations. Without a query: the newest. since and until take ISO 8601 dates.",
    "core_memory_append": "Add a line to a memory block, which every later conversation begins "
    "with. memory_show lists the blocks.",
    "core_memory_replace": "Replace a text that occurs once in a memory block. An empty "
    "new_content deletes it.",
    "memory_forget": "Forget a stored detail or a line of a block, by the id of a search hit or "
    "by its exact text. The user can have it restored.",
    "memory_rethink": "Rewrite a whole memory block. Show the memory first: a block that changed "
    "since you saw it is not overwritten.",
    "memory_show": "Show the memory blocks, which every conversation begins with, and how many "
    "details and conversations are stored.",
}
DESTRUCTIVE = frozenset(
    {"core_memory_replace", "memory_rethink", "memory_forget", "archival_memory_update"}
)
IDEMPOTENT = frozenset(
    {"core_memory_append", "archival_memory_insert", "archival_memory_update", "memory_forget"}
)
NO_ARGUMENTS: Json = {"type": "object", "properties": {}}
HITS: Json = {
    "type": "object",
    "properties": {"hits": {"type": "array", "items": {"type": "object"}}},
    "required": ["hits"],
}
SHOWN: Json = {
    "type": "object",
    "properties": {
        "blocks": {"type": "array", "items": {"type": "object"}},
        "passages": {"type": "integer"},
        "conversations": {"type": "integer"},
    },
    "required": ["blocks", "passages", "conversations"],
}
READS = SEARCHES | {SHOW}


def _schemas_of(definitions: Iterable[Json]) -> dict[str, Json]:
    """Return the arguments of tools, by name."""
    functions = [tool["function"] for tool in definitions]
    return {function["name"]: function["parameters"] for function in functions}


SCHEMAS: Mapping[str, Json] = {SHOW: NO_ARGUMENTS, **_schemas_of(tool_calls.DEFINITIONS)}


async def list_tools(memory: Memory, caller: DoorCaller) -> Json:
    """Return the tools that a caller's mode allows. Raises StoreDown."""
    allowed_names = {"full": READS | WRITES, "read": READS, "write": WRITES}
    tool_names = allowed_names.get(caller.mode, frozenset())
    schemas = SCHEMAS
    if caller.memory is not None and tool_names >= WRITES:
        with translate_errors():
            definitions = await offered_tools.definitions_for(memory, caller.memory)
        schemas = {**SCHEMAS, **_schemas_of(definitions)}
    return {"tools": [_describe(name, schemas[name]) for name in sorted(tool_names)]}


def _describe(name: str, schema: Json) -> Json:
    reads = name in READS
    hints: Json = {"title": TITLES[name], "readOnlyHint": reads, "openWorldHint": False}
    if not reads:
        hints["destructiveHint"] = name in DESTRUCTIVE
        hints["idempotentHint"] = name in IDEMPOTENT
    tool: Json = {
        "name": name,
        "title": TITLES[name],
        "description": DESCRIPTIONS[name],
        "inputSchema": schema,
        "annotations": hints,
    }
    if reads:
        tool["outputSchema"] = SHOWN if name == SHOW else HITS
    return tool


async def call_tool(memory: Memory, caller: DoorCaller, request: RpcRequest) -> CallResult:
    """Run the tool that a request names.

    Raises RpcError for an unknown one; StoreDown, RequestConflict.
    """
    name = text_of(request.params, "name")
    if name is None or name not in SCHEMAS:
        names = ", ".join(sorted(SCHEMAS))
        raise bad_params(request, f"Unknown tool: {str(name)[:80]!r}. The tools are: {names}.")
    arguments = request.params.get("arguments")
    if arguments is None:
        arguments = {}
    if caller.memory is None:
        return CallResult(NOBODY)
    with translate_errors():
        if name == SHOW:
            if not isinstance(arguments, dict):
                return CallResult("Error: the arguments must be a JSON object.")
            showing = shown_memory.show_memory(memory, caller.memory)
            return await tool_calls.finish_in_time(showing)
        text = msgspec.json.encode(arguments).decode()
        result = await tool_calls.run_call(memory, caller.memory, name, text)
    if name in SEARCHES and not result.is_error:
        return CallResult(result.text, result.explain, {"hits": _hits(result.text)})
    return result


def _hits(text: str) -> list[Any]:
    """Return the hits of a search, which its text has on a line each."""
    return [decode(line.encode()) for line in text.split("\n")[1:]]


def result_of(result: CallResult) -> Json:
    """Return a result as clients read it."""
    out: Json = {
        "content": [{"type": "text", "text": result.text}],
        "isError": result.is_error,
    }
    if result.data is not None:
        out["structuredContent"] = result.data
    return out
