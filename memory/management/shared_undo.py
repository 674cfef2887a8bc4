"""Undo by a user in a chat, of what may be shared: their own edits alone, the newest of a block."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.errors import BlockReadOnly, NotFound
from memory.management import blocks as own_blocks
from memory.management import passages, shared_blocks
from memory.management.passages import UndoneChange
from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.rows import passage_edits, visible_blocks
from memory.stores.sql.rows import shared_blocks as rows
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.rows.scopes import find
from memory.stores.sql.rows.shared_blocks import OutsideEdit


class NewestEdit(NamedTuple):
    """The newest edit of a shared block. at: Unix time."""

    at: float
    label: str
    block: str


async def undo_label(memory: Memory, actor: ManagementActor, label: str) -> UndoneChange:
    """Undo the newest edit of the block that is shown with a label.

    Of a shared one, if it is this user's. Raises NotFound, BlockReadOnly, BlockFull,
    StoreUnavailable.
    """

    def look(conn: Connection) -> CoreBlock | None:
        seen_block = visible_blocks.read_shared(conn, actor.scope, actor.defaults).blocks.get(label)
        if seen_block is not None:
            return seen_block.block
        return None

    block = None
    if actor.scope.is_named:
        block = await read(memory, look)
    if block is not None:
        if block.read_only:
            raise BlockReadOnly(f"The block {label!r} is read-only: nothing is undone.")
        return await _undo_shared(memory, actor, NewestEdit(0.0, label, block.id))
    edited = await own_blocks.undo_edit(memory, actor, label)
    return UndoneChange("block", label, None if edited is None else edited.value)


async def undo_newest(memory: Memory, actor: ManagementActor) -> UndoneChange:
    """Undo the newest change of this user's memory, or of a shared block if it is theirs.

    Raises NotFound, BlockReadOnly, BlockFull, StoreUnavailable.
    """

    def look(conn: Connection) -> NewestEdit | None:
        shown_blocks = visible_blocks.read_shared(conn, actor.scope, actor.defaults).blocks
        edits = [
            NewestEdit(edit.created_at, label, seen_block.block.id)
            for label, seen_block in shown_blocks.items()
            if not seen_block.block.read_only
            and (edit := rows.newest_edit(conn, seen_block.block.id)) is not None
            and edit.user is not None
            and edit.user == actor.source.user
        ]
        scope_id = find(conn, actor.scope)
        own_edit = None
        if scope_id is not None:
            own_edit = passage_edits.find_newest(conn, scope_id)
        newest_edit = max(edits, default=None)
        if newest_edit is None or (own_edit is not None and own_edit.at > newest_edit.at):
            return None
        return newest_edit

    if actor.scope.is_named and (newest_edit := await read(memory, look)) is not None:
        return await _undo_shared(memory, actor, newest_edit)
    return await passages.undo_newest(memory, actor)


async def _undo_shared(memory: Memory, actor: ManagementActor, edit: NewestEdit) -> UndoneChange:
    user = actor.source.user
    if user is None:
        raise NotFound(f"nothing is left to undo in {edit.label!r}")
    block_name = actor.scope.tenant, edit.block
    now = await shared_blocks.undo_edit(memory, block_name, actor.source, OutsideEdit(only=[user]))
    return UndoneChange("block", edit.label, None if now is None else now.block.value)
