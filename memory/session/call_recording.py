"""Writes what is recorded of a memory tool that was called outside a conversation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection

from memory import tools
from memory.conversation.messages import Json
from memory.core.blocks import CoreBlock
from memory.core.layers import Layer
from memory.errors import ErasedMeanwhile
from memory.ids import clock, new_id, new_key
from memory.scope import owner_key
from memory.session.memory_caller import MemoryCaller
from memory.stores.sql.rows import call_records, scopes
from memory.stores.sql.rows.call_records import MemoryCallRecord

ACTOR = "mcp"
# What a turn's record has beside: whoever reads records finds these members in each.
NO_TURN: Json = {
    "conversation": "",
    "model": "",
    "decisions": {},
    "epoch": {"id": "", "began": None},
    "injected": {
        "core": "",
        "blocks_left_out": [],
        "notes": [],
        "spliced": [],
        "recall": "",
        "tools": [],
        "history": 0,
    },
    "evicted": [],
    "timings_ms": {},
    "remarks": [],
    "tokens": {
        "injected": 0,
        "prompt_estimate": 0,
        "counted": False,
        "system": 0,
        "client_tools": 0,
        "window": None,
        "rounds": [],
    },
}


def refuse_erased(conn: Connection, caller: MemoryCaller) -> None:
    """Raise ErasedMeanwhile if the user whom an agent's memory hears was erased just now."""
    if caller.said_by is None:
        return
    owner = owner_key(caller.scope.secret, caller.scope.tenant, caller.said_by)
    if scopes.erased_at(conn, [owner]).get(owner, 0.0) >= clock.now() - 1.0:
        raise ErasedMeanwhile(scopes.ERASED_MEANWHILE)


def find_record_scope(conn: Connection, caller: MemoryCaller, scope_id: int) -> int:
    if caller.said_by is None:
        return scope_id
    return scopes.get_or_create(conn, scopes.current_owner(conn, caller.scope_of_record))


def describe_call(caller: MemoryCaller, call: tools.ToolCall, text: str, began: float) -> Json:
    """Return what a record tells of a call."""
    screen = caller.policy.screen
    return {
        "round": 1,
        "name": call.name,
        "arguments": screen.mask(tools.kept_arguments(call.arguments))[0],
        "result": screen.mask(text)[0],
        "ms": round((time.perf_counter() - began) * 1000, 2),
    }


def describe_sources(blocks: Iterable[CoreBlock], layers: Sequence[Layer] = ()) -> Json:
    """Return what a record tells of the shared blocks and the layers that a call may show.

    By these, what was shown is hidden from who does not read them any more.
    """
    sources: Json = {}
    if shared_blocks := {block.label: block.id for block in blocks if block.shared}:
        sources["shared"] = shared_blocks
    if layers:
        labels = [layer.label for layer in layers]
        sources["layers"] = {"read": labels, "blocks": {}, "recall": {}}
    return sources


def record_call(
    conn: Connection,
    caller: MemoryCaller,
    seen_versions: Mapping[str, int],
    call: Json,
    sources: Json,
) -> str:
    """Write the explain record of a call; return its id. sources: see `describe_sources`."""
    key = new_key()
    ident = f"{new_id('explain')}{key:016x}"
    scope_id = scopes.find(conn, caller.scope) or 0
    record = {
        "id": ident,
        "object": "explain",
        "request_id": caller.request_id,
        "agent": caller.scope.agent_name,
        **({"project": caller.scope.project} if caller.scope.project else {}),
        **({"home": "agent"} if caller.said_by is not None else {}),
        **NO_TURN,
        "wire": ACTOR,
        "tools": [call],
        **sources,
        **caller.extra_members,
    }
    where = find_record_scope(conn, caller, scope_id)
    call_records.add(conn, MemoryCallRecord(key, where, caller.reader, dict(seen_versions), record))
    return ident
