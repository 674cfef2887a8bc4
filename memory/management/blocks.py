"""Core memory from outside: blocks, their versions, undo, and edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.core.edits import Edit, patch_block, put_block, remove_block
from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.rows import blocks as rows
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.management_context import ManagementActor, touch_scope
from memory.stores.sql.rows.visible_blocks import hide_own

__all__ = [
    "edit_block",
    "list_blocks",
    "list_versions",
    "patch_block",
    "put_block",
    "remove_block",
    "undo_edit",
]


async def list_blocks(memory: Memory, actor: ManagementActor) -> Mapping[str, CoreBlock]:
    """List the blocks by label, including the operator's. Raises StoreUnavailable.

    One in whose place a shared block is shown says so.
    """

    def work(conn: Connection) -> Mapping[str, CoreBlock]:
        own_blocks = rows.all_of(conn, actor.block_set(conn))
        if not actor.scope.is_named:
            return own_blocks
        return hide_own(conn, actor.scope, own_blocks, actor.defaults)

    return await read(memory, work)


async def edit_block(
    memory: Memory, actor: ManagementActor, label: str, edit: Edit, expect: int | None = None
) -> CoreBlock | None:
    """Edit a block and return it; None if it was deleted.

    expect: the version the caller saw. Raises Conflict, NotFound, ToolError, StoreUnavailable.
    """
    source = replace(actor.source, expect=expect)

    def work(conn: Connection) -> CoreBlock | None:
        block_set = BlockSet(touch_scope(conn, actor.scope), actor.defaults)
        return rows.edit(conn, block_set, label, edit, source)

    return await memory.db.write(work, lock=actor.lock)


async def undo_edit(memory: Memory, actor: ManagementActor, label: str) -> CoreBlock | None:
    """Undo the newest edit and return the block; None if it is gone.

    Raises NotFound, BlockReadOnly, BlockFull, StoreUnavailable.
    """

    def work(conn: Connection) -> CoreBlock | None:
        block_set = BlockSet(touch_scope(conn, actor.scope), actor.defaults)
        return rows.undo(conn, block_set, label, actor.source)

    return await memory.db.write(work, lock=actor.lock)


async def list_versions(
    memory: Memory, actor: ManagementActor, label: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List a block's versions, newest first, before a version.

    Raises NotFound for a block that was never edited and is not a default; StoreUnavailable.
    """
    return await read(
        memory, lambda conn: rows.versions(conn, actor.block_set(conn), label, before, limit)
    )
