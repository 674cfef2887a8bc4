"""What MCP clients may read: the user's blocks, and what changed lately."""

from __future__ import annotations

import msgspec

from gateway.management.context import translate_errors
from gateway.mcp.caller import DoorCaller
from gateway.mcp.errors import NO_RESOURCE
from gateway.mcp.protocol import RpcRequest, bad_params, text_of
from gateway.wire.chat import Json
from memory import Memory
from memory.management import shown_memory
from memory.management.tool_calls import MemoryCaller

BLOCKS = "memory://blocks/"
CHANGES = "memory://changes"
PLAIN = "text/plain"
SHOWN_CHANGES = 50
TEMPLATES: Json = {
    "resourceTemplates": [
        {
            "uriTemplate": BLOCKS + "{label}",
            "name": "block",
            "title": "A memory block",
            "mimeType": PLAIN,
        }
    ]
}


def _may_read(caller: DoorCaller) -> bool:
    return caller.memory is not None and caller.memory.mode in ("full", "read")


async def list_resources(memory: Memory, caller: DoorCaller) -> Json:
    """Return the user's blocks, and the list of changes. Raises StoreDown."""
    if caller.memory is None or not _may_read(caller):
        return {"resources": []}
    with translate_errors():
        visible_memory = await shown_memory.read_memory(memory, caller.memory)
    blocks = [
        {
            "uri": BLOCKS + label,
            "name": label,
            "title": f"Memory block: {label}",
            "description": visible_memory.blocks[label].description,
            "mimeType": PLAIN,
        }
        for label in sorted(visible_memory.blocks)
    ]
    changes = {
        "uri": CHANGES,
        "name": "changes",
        "title": "What changed in the memory",
        "description": f"The last {SHOWN_CHANGES} changes, one JSON object a line, newest last.",
        "mimeType": PLAIN,
    }
    return {"resources": [*blocks, changes]}


async def read_resource(memory: Memory, caller: DoorCaller, request: RpcRequest) -> Json:
    """Return one resource. Raises RpcError for an unknown one; StoreDown."""
    uri = text_of(request.params, "uri")
    text = None
    if uri is not None and caller.memory is not None and _may_read(caller):
        text = await _read(memory, caller.memory, uri)
    if text is None:
        message = f"There is no resource {str(uri)[:80]!r} here. resources/list names them."
        raise bad_params(request, message, NO_RESOURCE)
    return {"contents": [{"uri": uri, "mimeType": PLAIN, "text": text}]}


async def _read(memory: Memory, caller: MemoryCaller, uri: str) -> str | None:
    with translate_errors():
        if uri == CHANGES:
            changes = await shown_memory.list_changes(memory, caller, SHOWN_CHANGES)
            return "\n".join(msgspec.json.encode(change).decode() for change in changes)
        if not uri.startswith(BLOCKS):
            return None
        block = await shown_memory.show_block(memory, caller, uri[len(BLOCKS) :])
    if block is None:
        return None
    return block.text
