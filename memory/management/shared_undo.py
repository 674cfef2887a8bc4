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
        seen = visible_blocks.read_shared(conn, actor.scope, actor.defaults).blocks.get(label)
        return seen.block if seen is not None else None

    block = await read(memory, look) if actor.scope.is_named else None
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
        shown = visible_blocks.read_shared(conn, actor.scope, actor.defaults).blocks
        edits = [
            NewestEdit(edit.created_at, label, seen.block.id)
            for label, seen in shown.items()
            if not seen.block.read_only
            and (edit := rows.newest_edit(conn, seen.block.id)) is not None
            and edit.user is not None
            and edit.user == actor.source.user
        ]
        scope_id = find(conn, actor.scope)
        own = None if scope_id is None else passage_edits.find_newest(conn, scope_id)
        newest = max(edits, default=None)
        return None if newest is None or (own is not None and own.at > newest.at) else newest

    if actor.scope.is_named and (newest := await read(memory, look)) is not None:
        return await _undo_shared(memory, actor, newest)
    return await passages.undo_newest(memory, actor)


async def _undo_shared(memory: Memory, actor: ManagementActor, edit: NewestEdit) -> UndoneChange:
    user = actor.source.user
    if user is None:
        raise NotFound(f"nothing is left to undo in {edit.label!r}")
    which = actor.scope.tenant, edit.block
    now = await shared_blocks.undo_edit(memory, which, actor.source, OutsideEdit(only=[user]))
    return UndoneChange("block", edit.label, None if now is None else now.block.value)
