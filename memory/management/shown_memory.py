"""What a memory holds, for a program outside a conversation; what it was shown is noted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
from sqlalchemy import Connection, func, select

from memory import tools
from memory.conversation.messages import Json
from memory.core.blocks import CoreBlock, elements
from memory.management.reading import read
from memory.service import Memory
from memory.session.call_recording import (
    describe_call,
    describe_sources,
    find_record_scope,
    record_call,
    refuse_erased,
)
from memory.session.memory_caller import CallResult, MemoryCaller, refusal
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import call_records, recent_changes, scopes, visible_blocks

SHOW = "memory_show"


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """What a memory holds: its blocks, and how many details and conversations."""

    blocks: Mapping[str, CoreBlock]
    passages: int
    conversations: int

    @property
    def text(self) -> str:
        block_elements = elements(list(self.blocks.values()))
        return (
            f"<memory_blocks>\n{block_elements}\n</memory_blocks>\n"
            f"Details in archival memory: {self.passages}. Conversations: {self.conversations}."
        )

    def to_json(self) -> Json:
        blocks = [
            {
                "label": block.label,
                "description": block.description,
                "value": block.value,
                "characters": len(block.value),
                "limit": block.limit,
                "read_only": block.read_only,
                "version": block.version,
            }
            for block in sorted(self.blocks.values(), key=lambda block: block.label)
        ]
        return {
            "blocks": blocks,
            "passages": self.passages,
            "conversations": self.conversations,
        }


async def read_memory(memory: Memory, caller: MemoryCaller) -> ShownMemory:
    """Return what a memory holds. Raises StoreUnavailable."""
    await memory.wait_until_ready()
    await memory.db.filer.file_of(caller.scope.key, caller.policy.read_deadline)
    return await read(memory, partial(_read_memory, caller=caller))


def _read_memory(conn: Connection, caller: MemoryCaller) -> ShownMemory:
    scope_id = scopes.find(conn, caller.scope)
    blocks = visible_blocks.VisibleBlocks(conn, caller.block_set(scope_id)).read()
    passage_columns = t.passages.c
    conversation_columns = t.conversations.c
    passages = select(func.count()).where(
        passage_columns.scope_id == scope_id, passage_columns.deleted_at.is_(None)
    )
    conversations = select(func.count()).where(conversation_columns.scope_id == scope_id)
    counts = [conn.execute(query).scalar() or 0 for query in (passages, conversations)]
    return ShownMemory(blocks, *counts)


async def show_memory(memory: Memory, caller: MemoryCaller) -> CallResult:
    """Return the blocks, and note that the caller saw them.

    Raises StoreUnavailable, ErasedMeanwhile.
    """
    began = time.perf_counter()
    if text := refusal(caller, SHOW):
        return await record_refusal(memory, caller, tools.ToolCall("", SHOW, "{}"), text)
    shown_memory = await read_memory(memory, caller)
    call = describe_call(caller, tools.ToolCall("", SHOW, "{}"), shown_memory.text, began)
    explain = await _write_record(memory, caller, shown_memory.blocks, call)
    return CallResult(shown_memory.text, explain, shown_memory.to_json())


async def show_block(memory: Memory, caller: MemoryCaller, label: str) -> CallResult | None:
    """Return the value of a block, and note that the caller saw it; None if there is none.

    Raises StoreUnavailable, ErasedMeanwhile.
    """
    began = time.perf_counter()
    block = (await read_memory(memory, caller)).blocks.get(label)
    if block is None:
        return None
    arguments = msgspec.json.encode({"label": label}).decode()
    call = describe_call(
        caller, tools.ToolCall("", "resources/read", arguments), block.value, began
    )
    explain = await _write_record(memory, caller, {label: block}, call)
    return CallResult(block.value, explain)


async def record_refusal(
    memory: Memory, caller: MemoryCaller, call: tools.ToolCall, text: str
) -> CallResult:
    """Return a call that its mode refuses, with a record unless memory is off.

    Raises StoreUnavailable, ErasedMeanwhile.
    """
    if caller.mode == "off":
        return CallResult(text)
    await memory.wait_until_ready()
    await memory.db.filer.file_of(caller.scope.key, caller.policy.read_deadline)
    description = describe_call(caller, call, text, time.perf_counter())
    return CallResult(text, await _write_record(memory, caller, {}, description))


async def _write_record(
    memory: Memory, caller: MemoryCaller, seen_blocks: Mapping[str, CoreBlock], call: Json
) -> str:
    """Note that a caller saw blocks as they are; return the id of the call's record."""
    seen_versions = {label: block.version for label, block in seen_blocks.items()}
    sources = describe_sources(seen_blocks.values())

    def work(conn: Connection) -> str:
        refuse_erased(conn, caller)
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, caller.scope))
        previous_versions = call_records.seen_by(
            conn, find_record_scope(conn, caller, scope_id), caller.reader
        )
        versions = {**previous_versions, **seen_versions}
        return record_call(conn, caller, versions, call, sources)

    lock = owner_lock(caller.scope.tenant, caller.scope.user)
    return await memory.db.write(work, lock=lock)


async def list_changes(memory: Memory, caller: MemoryCaller, limit: int) -> list[Json]:
    """Return what changed last in a memory, newest last. Raises StoreUnavailable."""
    await memory.wait_until_ready()

    def work(conn: Connection) -> list[Json]:
        scope_id = scopes.find(conn, caller.scope)
        if scope_id is None:
            return []
        return recent_changes.list_newest(conn, scope_id, limit)

    return await read(memory, work)
