"""Shared blocks from outside: made, found, edited, undone, and who sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection

from memory.core.block_space import BlockTally, space_of
from memory.core.blocks import CoreBlock, append_line, check_label
from memory.core.edits import BlockEdit, writable
from memory.core.shared import change_block
from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.rows import shared_blocks as rows
from memory.stores.sql.rows import shared_members as members
from memory.stores.sql.rows import visible_blocks
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.rows.shared_blocks import BlockName, BlockWalk, OutsideEdit, StoredShared
from memory.stores.sql.rows.shared_members import MemberName, StoredMember

__all__ = [
    "BlockFilter",
    "BlockName",
    "BlockWalk",
    "MemberName",
    "NewShared",
    "OutsideEdit",
    "SharedEdit",
    "StoredMember",
    "StoredShared",
    "append_content",
    "change_value",
    "check_space",
    "create_block",
    "create_blocks",
    "delete_block",
    "edit_block",
    "find_block",
    "list_access",
    "list_blocks",
    "list_by_time",
    "list_members",
    "list_shown",
    "list_versions",
    "new_block",
    "put_member",
    "read_members",
    "remove_member",
    "undo_edit",
]
T = TypeVar("T")
SharedEdit = rows.Edit
# Members that a block is shown with.
MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class BlockFilter:
    """Which blocks to list. users: that one of them sees, None for any. agent: with it.

    circle: the team or project that is a member.
    """

    label: str = ""
    users: Sequence[str] | None = None
    agent: str | None = None
    circle: MemberName | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        clauses: list[ColumnElement[bool]] = []
        if self.label:
            clauses.append(rows.b.label == self.label)
        if self.users is not None:
            clauses.append(members.seen_by(self.users, self.agent))
        elif self.agent is not None:
            clauses.append(members.of_member("agent", self.agent))
        if self.circle is not None:
            clauses.append(members.of_member(self.circle.kind, self.circle.name))
        return clauses


@dataclass(frozen=True, slots=True)
class NewShared:
    """A block to make. members: each with its right to write, None for what the block says."""

    block: CoreBlock
    default_write: bool = False
    members: Sequence[tuple[MemberName, bool | None]] = ()


async def _write(memory: Memory, tenant: str, ident: str, work: Callable[[Connection], T]) -> T:
    try:
        return await memory.db.write(work, lock=f"shared block {tenant}:{ident}")
    finally:
        memory.shared.note(tenant)


async def list_blocks(
    memory: Memory,
    tenant: str,
    block_filter: BlockFilter,
    after: tuple[str, str] | None,
    limit: int,
) -> list[StoredShared]:
    """List blocks by label and id, behind a place. Raises StoreUnavailable."""
    return await read(
        memory, lambda conn: rows.page(conn, tenant, block_filter.conditions(), after, limit)
    )


async def find_block(memory: Memory, block_name: BlockName) -> StoredShared:
    """Return a block. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, block_name))


async def create_block(
    memory: Memory, tenant: str, new_block: NewShared, source: EditSource
) -> StoredShared:
    """Make a block with its members. Raises Conflict, StoreUnavailable."""
    (created_block,) = await create_blocks(memory, tenant, [new_block], source)
    return created_block


async def create_blocks(
    memory: Memory, tenant: str, new_blocks: Sequence[NewShared], source: EditSource
) -> list[StoredShared]:
    """Make blocks with their members, all or none. Raises Conflict, StoreUnavailable."""

    def create(conn: Connection, new_block: NewShared) -> StoredShared:
        created_block = rows.create(
            conn, tenant, new_block.block, source, default_write=new_block.default_write
        )
        members.add_all(conn, created_block, tenant, new_block.members)
        return created_block

    return await _write(
        memory, tenant, "", lambda conn: [create(conn, new_block) for new_block in new_blocks]
    )


async def list_by_time(
    memory: Memory, tenant: str, block_filter: BlockFilter, walk: BlockWalk, limit: int
) -> list[StoredShared]:
    """List blocks by the time at which they were made. Raises StoreUnavailable."""
    conditions = block_filter.conditions()
    return await read(memory, lambda conn: rows.page_by_time(conn, tenant, conditions, walk, limit))


async def list_shown(memory: Memory, actor: ManagementActor) -> dict[str, CoreBlock]:
    """List the blocks of a named memory by label: its own, and in their place shared ones.

    Those that do not fit its prompt are among them. Raises StoreUnavailable.
    """
    return await read(
        memory, lambda conn: visible_blocks.read_all(conn, actor.block_set(conn), actor.scope)
    )


async def edit_block(
    memory: Memory,
    block_name: BlockName,
    edit: rows.Edit,
    source: EditSource,
    outside_edit: OutsideEdit,
) -> StoredShared | None:
    """Edit a block and return it; None if it was deleted.

    Raises NotFound, Conflict, ToolError, StoreUnavailable.
    """
    return await _write(
        memory, *block_name, lambda conn: rows.edit(conn, block_name, edit, source, outside_edit)
    )


def check_space(
    memory: Memory, shown_blocks: Mapping[str, CoreBlock], added_blocks: Iterable[CoreBlock]
) -> None:
    """Raise TooManyBlocks or BlockSpaceFull where a memory has no room for more blocks.

    shown_blocks: those that it shows, by label.
    """
    tally = BlockTally(space_of(memory.policy.blocks), shown_blocks)
    for block in added_blocks:
        tally.put(block.label, block)


def new_block(block: CoreBlock, change: BlockEdit) -> CoreBlock:
    """Return a block to make. Raises BadArguments for its label, BlockFull."""
    check_label(block.label)
    return change_block(block, change)


def change_value(change: BlockEdit) -> rows.Edit:
    """Return an edit that changes members of a block."""
    return lambda block: change_block(block, change)


def append_content(content: str) -> rows.Edit:
    """Return an edit that adds a line at the end."""
    return lambda block: append_line(block, content)


def delete_block(block: CoreBlock) -> None:
    """Delete a block, as an edit. Raises BlockReadOnly."""
    writable(block)


async def undo_edit(
    memory: Memory, block_name: BlockName, source: EditSource, outside_edit: OutsideEdit
) -> StoredShared | None:
    """Undo the newest edit and return the block; None if it is gone.

    Raises NotFound, BlockReadOnly, StoreUnavailable.
    """
    return await _write(
        memory, *block_name, lambda conn: rows.undo(conn, block_name, source, outside_edit)
    )


async def list_versions(
    memory: Memory, block_name: BlockName, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List versions, newest first, before a version. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: rows.versions(conn, block_name, before, limit))


async def list_access(
    memory: Memory, block_name: BlockName, users: Sequence[str]
) -> dict[str, bool]:
    """Return which of these users see a block, and whether each may write in it.

    Raises StoreUnavailable.
    """
    return await read(memory, lambda conn: members.list_access(conn, block_name, users))


async def list_members(
    memory: Memory, block_name: BlockName, after: MemberName | None, limit: int
) -> list[StoredMember]:
    """List the members of a block by name, behind a place. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> list[StoredMember]:
        rows.find(conn, block_name)
        return members.page(conn, block_name, after, limit)

    return await read(memory, work)


async def read_members(
    memory: Memory, tenant: str, blocks: Iterable[StoredShared]
) -> dict[str, list[StoredMember]]:
    """Return the first members of blocks, by id. Raises StoreUnavailable."""
    names = [block.id for block in blocks]
    return await read(memory, lambda conn: members.list_of(conn, tenant, names, MOST_SHOWN))


async def put_member(
    memory: Memory, block_name: BlockName, member: MemberName, write: bool | None
) -> StoredMember:
    """Let a member see a block. Raises NotFound, Conflict, StoreUnavailable.

    write: whether it may write, None for what the block says.
    """
    return await _write(
        memory, *block_name, lambda conn: members.put(conn, block_name, member, write)
    )


async def remove_member(memory: Memory, block_name: BlockName, member: MemberName) -> None:
    """Take a membership away. Raises NotFound, StoreUnavailable."""
    await _write(memory, *block_name, lambda conn: members.remove(conn, block_name, member))
