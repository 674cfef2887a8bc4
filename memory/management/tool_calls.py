"""The memory tools, called by a program outside a conversation.

A call runs through the functions that run a model's calls: the same receipts, limits, screen and
compare-and-set. As an edit from outside it outdates every frozen core text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from memory import tools
from memory.conversation.messages import Json
from memory.core.tool_definitions import ALL, SEARCHES, WRITES
from memory.ids import new_id
from memory.management.reading import read
from memory.management.shown_memory import record_refusal
from memory.service import Memory
from memory.session.call_recording import (
    ACTOR,
    describe_call,
    describe_sources,
    find_record_scope,
    record_call,
    refuse_erased,
)
from memory.session.caller_layers import read_layers
from memory.session.memory_caller import CallResult, MemoryCaller, refusal
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import call_records, scopes, visible_blocks
from memory.stores.sql.rows import passage_lifecycle as fact_rows

__all__ = [
    "DEFINITIONS",
    "SEARCHES",
    "WRITES",
    "CallResult",
    "MemoryCaller",
    "finish_in_time",
    "run_call",
]

DEFINITIONS: Sequence[Json] = ALL
LATE = (
    "Error: the memory did not finish within {} s. Whether it was saved is not known: search, or "
    "show the memory, before you call again."
)
UNCHANGED = ("Error:", "Already ")


async def run_call(memory: Memory, caller: MemoryCaller, name: str, arguments: str) -> CallResult:
    """Run one memory tool. arguments: JSON text.

    Raises StoreUnavailable, ErasedMeanwhile.
    """
    call = tools.ToolCall(new_id("call"), name, arguments)
    await memory.wait_until_ready()
    if text := refusal(caller, name):
        return await finish_in_time(record_refusal(memory, caller, call, text))
    return await finish_in_time(_run(memory, caller, call))


async def finish_in_time(call: Awaitable[CallResult]) -> CallResult:
    """Await a call; one that takes too long is an error that says so."""
    try:
        async with asyncio.timeout(tools.CALL_SECONDS):
            return await call
    except TimeoutError:
        return CallResult(LATE.format(round(tools.CALL_SECONDS)))


async def _run(memory: Memory, caller: MemoryCaller, call: tools.ToolCall) -> CallResult:
    began = time.perf_counter()
    await memory.db.filer.file_of(caller.scope.key, caller.policy.read_deadline)
    context = await read(memory, partial(_read_context, memory=memory, caller=caller))
    searched = await tools.run_searches([call], context)
    running_call = _RunningCall(caller, call, context, searched.get(0), began)
    lock = owner_lock(caller.scope.tenant, caller.scope.user)
    result = await memory.db.write(partial(_finish, running_call=running_call), lock=lock)
    if call.name in WRITES:
        memory.shared.outdate(caller.scope.tenant)
    return result


def _read_context(conn: Connection, memory: Memory, caller: MemoryCaller) -> tools.ToolContext:
    policy = caller.policy
    scope_id = scopes.find(conn, caller.scope)
    layers = read_layers(conn, caller, memory.shared)
    return tools.ToolContext(
        scope_id or 0,
        caller.block_set(scope_id),
        memory.retrieval,
        caller.request_id,
        {},
        actor=ACTOR,
        screen=policy.screen,
        model_blocks=policy.model_blocks,
        speaker=tools.Speaker(caller.said_by, caller.zone or policy.extraction.zone, layers),
    )


@dataclass(frozen=True, slots=True)
class _RunningCall:
    """A call before its write. text: the result of a search. began: by perf_counter."""

    caller: MemoryCaller
    call: tools.ToolCall
    context: tools.ToolContext
    text: str | None
    began: float


def _finish(conn: Connection, running_call: _RunningCall) -> CallResult:
    """Run an edit, if the call is one, and write the call's record, in one transaction.

    It may run twice.
    """
    caller = running_call.caller
    call = running_call.call
    context = running_call.context
    refuse_erased(conn, caller)
    scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, caller.scope))
    context.scope_id = scope_id
    context.block_set = caller.block_set(scope_id)
    blocks = visible_blocks.VisibleBlocks(conn, context.block_set).read()
    # A block is rewritten only by who was shown what is in it; every caller knows an empty one.
    empty_blocks = {label: block.version for label, block in blocks.items() if not block.value}
    seen_versions = {**_find_seen(conn, caller, scope_id), **empty_blocks}
    text = running_call.text
    if text is None:
        context.seen_versions = seen_versions
        text = tools.run_edits(conn, [call], context)[0]
    elif not caller.only_reads:
        fact_rows.record_use(conn, context.found_passages)
    is_edit = call.name in WRITES and not text.startswith(UNCHANGED)
    if not caller.only_reads:
        scopes.touch(conn, scope_id, outside=is_edit)
    description = describe_call(caller, call, text, running_call.began)
    sources = describe_sources(blocks.values(), context.speaker.layers.layers)
    return CallResult(text, record_call(conn, caller, seen_versions, description, sources))


def _find_seen(conn: Connection, caller: MemoryCaller, scope_id: int) -> dict[str, int]:
    """Return the versions of the blocks that the caller was shown."""
    record_scope = find_record_scope(conn, caller, scope_id)
    return call_records.seen_by(conn, record_scope, caller.reader)
