"""A block that lists what a scope has, such as its files. Nobody writes it but what makes the list.

It is a row like that of any block, and who has nothing to list has no such row. A block of its
label that somebody else made stays as it is, and no list is shown.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.errors import ToolError
from memory.stores.sql.rows import blocks
from memory.stores.sql.rows.blocks import BlockSet, EditSource

log = logging.getLogger("mnemogate")


@dataclass(frozen=True, slots=True)
class ListBlock:
    """What tells such a block from others. limit: in characters."""

    label: str
    description: str
    limit: int

    def is_own(self, block: CoreBlock) -> bool:
        """Tell whether a block of this label is the list."""
        return block.read_only and block.description == self.description

    def is_list(self, row: Any) -> bool:
        """Tell whether the row of a block is the list."""
        is_described = row.read_only and row.description == self.description
        return bool(row.label == self.label and is_described)

    def write(
        self,
        conn: Connection,
        block_set: BlockSet,
        value: str | None,
        source: EditSource,
    ) -> None:
        """Write the list, if it differs. value: None where there is nothing to list."""

        def edit(block: CoreBlock | None) -> CoreBlock | None:
            if block is not None and not self.is_own(block):
                return block
            if value is None:
                return None
            empty_list = CoreBlock(self.label, "", self.description, self.limit, read_only=True)
            return replace(block or empty_list, value=value)

        try:
            blocks.edit(conn, block_set, self.label, edit, replace(source, expect=None))
        except ToolError as e:
            log.info("the block `%s` is not shown: %s", self.label, e)
