"""The memory tools, called by a program outside a conversation.

A call runs through the functions that run a model's calls: the same receipts, limits, screen and
compare-and-set. As an edit from outside it outdates every frozen core text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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
    find_record_scope,
    record_call,
    refuse_erased,
)
from memory.session.memory_caller import CallResult, MemoryCaller, refusal
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import call_records, scopes, visible_blocks
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows.blocks import BlockSet

__all__ = ["DEFINITIONS", "SEARCHES", "WRITES", "CallResult", "MemoryCaller", "run_call"]

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
    try:
        async with asyncio.timeout(tools.CALL_SECONDS):
            if text := refusal(caller, name):
                return await record_refusal(memory, caller, call, text)
            return await _run(memory, caller, call)
    except TimeoutError:
        return CallResult(LATE.format(round(tools.CALL_SECONDS)))


async def _run(memory: Memory, caller: MemoryCaller, call: tools.ToolCall) -> CallResult:
    began = time.perf_counter()
    await memory.db.filer.file_of(caller.scope.key, caller.policy.read_deadline)
    scope_id = await read(memory, partial(scopes.find, scope=caller.scope))
    context = _context(memory, caller, scope_id)
    searched = await tools.run_searches([call], context)
    running_call = _RunningCall(caller, call, context, searched.get(0), began)
    lock = owner_lock(caller.scope.tenant, caller.scope.user)
    result = await memory.db.write(partial(_finish, running_call=running_call), lock=lock)
    if call.name in WRITES:
        memory.shared.outdate(caller.scope.tenant)
    return result


def _context(memory: Memory, caller: MemoryCaller, scope_id: int | None) -> tools.ToolContext:
    policy = caller.policy
    return tools.ToolContext(
        scope_id or 0,
        BlockSet(scope_id, policy.blocks, shared=caller.scope),
        memory.retrieval,
        caller.request_id,
        {},
        actor=ACTOR,
        screen=policy.screen,
        model_blocks=policy.model_blocks,
        speaker=tools.Speaker(caller.said_by, caller.zone or policy.extraction.zone),
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
    context.block_set = BlockSet(scope_id, caller.policy.blocks, shared=caller.scope)
    seen_versions = _find_seen(conn, caller, context.block_set)
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
    return CallResult(text, record_call(conn, caller, seen_versions, description))


def _find_seen(conn: Connection, caller: MemoryCaller, block_set: BlockSet) -> dict[str, int]:
    """Return the versions of the blocks that the caller knows; of an empty one every caller does.

    So a block is rewritten only by who was shown what is in it.
    """
    scope_id = find_record_scope(conn, caller, block_set.scope_id or 0)
    seen_versions = call_records.seen_by(conn, scope_id, caller.reader)
    blocks = visible_blocks.VisibleBlocks(conn, block_set).read()
    empty_blocks = {label: block.version for label, block in blocks.items() if not block.value}
    return {**seen_versions, **empty_blocks}
