"""The lines about the user in the block `human`, as extraction reads and edits them."""

from __future__ import annotations

from collections.abc import Mapping, Set

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock, rewrite_value
from memory.errors import ToolError
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.visible_blocks import is_hidden

LABEL = "human"


class HumanBlock:
    """The block of one scope. blocks: the operator's."""

    def __init__(self, scope_id: int | None, blocks: Mapping[str, CoreBlock]) -> None:
        self._set = block_rows.BlockSet(scope_id, blocks)

    def lines(self, conn: Connection) -> list[str]:
        """Return its lines, without blank ones."""
        block = block_rows.all_of(conn, self._set).get(LABEL)
        lines = (block.value if block else "").split("\n")
        return [line.strip() for line in lines if line.strip()]

    def replace_lines(
        self, conn: Connection, removed_lines: Set[str], new_line: str | None, source: EditSource
    ) -> bool:
        """Replace lines by a new one, None for none.

        Returns False if the block is missing, read-only or would be too long; and for a new line if
        a shared block is shown in its place, where nobody would see it.
        """

        def edit(block: CoreBlock | None) -> CoreBlock | None:
            if block is None:
                return None
            remaining_lines = [
                line for line in block.value.split("\n") if line.strip() not in removed_lines
            ]
            return rewrite_value(
                block,
                "\n".join([*remaining_lines, new_line] if new_line else remaining_lines).strip(
                    "\n"
                ),
            )

        scope_id = self._set.scope_id
        if new_line and scope_id is not None and is_hidden(conn, scope_id, LABEL):
            return False
        try:
            return block_rows.edit(conn, self._set, LABEL, edit, source) is not None
        except ToolError:
            return False
