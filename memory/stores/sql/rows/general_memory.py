"""A user's memory outside of projects, as their memory in a project reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.core.layers import OWN, Layer
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import blocks, scopes
from memory.stores.sql.rows.blocks import BlockSet

s = t.scopes.c


class GeneralBlocks(msgspec.Struct, frozen=True):
    """The general blocks. defaults: the operator's. write: a memory in a project may edit them."""

    scope: Scope
    defaults: Mapping[str, CoreBlock]
    write: bool = False

    def block_set(self, conn: Connection) -> BlockSet:
        """Return the blocks as they are stored."""
        return BlockSet(scopes.find(conn, self.scope), self.defaults)

    def read(self, conn: Connection) -> dict[str, CoreBlock]:
        """Return the blocks by label, read-only where they may not be edited."""
        general_blocks = blocks.all_of(conn, self.block_set(conn))
        if self.write:
            return general_blocks
        return {label: replace(block, read_only=True) for label, block in general_blocks.items()}

    def edit_shelf(self, conn: Connection) -> BlockSet:
        """Return the blocks to edit, of a memory that is made if it is missing."""
        row = scopes.get_or_create(conn, scopes.current_owner(conn, self.scope))
        return BlockSet(row, self.defaults)


class GeneralMemory(msgspec.Struct, frozen=True):
    """What a memory in a project reads of the general one.

    version: of its row, None without one. layer: in which its passages are searched.
    """

    blocks: Mapping[str, CoreBlock]
    version: int | None
    layer: Layer


def read_general(conn: Connection, general_blocks: GeneralBlocks) -> GeneralMemory:
    """Return a user's general memory."""
    row = scopes.find(conn, general_blocks.scope)
    edits = 0
    version = None
    if row is not None:
        edits, version = scopes.read_counts(conn, row)
    layer = Layer(OWN, "", general_blocks.write, row, edits)
    return GeneralMemory(general_blocks.read(conn), version, layer)
