"""Checks that the blocks of an import fit, before its first row is written.

The blocks of all agents are looked at in the transaction that writes the first of them, in the
order in which they are written. So an import that cannot be finished changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from sqlalchemy import Connection, select

from memory.core.block_space import BlockTally, space_of
from memory.core.blocks import CoreBlock
from memory.core.edits import BlockEdit, put_block
from memory.errors import BlockReadOnly
from memory.export_format import BlockLine
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.transfer.import_manifest import ImportPart

b = t.blocks.c


def check_parts(
    connection: Callable[[], Connection], actor: ManagementActor, parts: Mapping[str, ImportPart]
) -> Iterator[int]:
    """Check the blocks of all agents; yield 0 after each line.

    connection: returns that of the piece that is being written. Raises TooManyBlocks,
    BlockSpaceFull, and what an edit raises.
    """
    for agent, part in parts.items():
        if not part.blocks:
            continue
        conn = connection()
        scope = replace(actor.scope, agent=agent)
        block_set = block_rows.BlockSet(scopes.find(conn, scope), actor.defaults)
        stored_labels = _labels(conn, block_set)
        locked_labels = {label for label, block in actor.defaults.items() if block.read_only}
        tally = BlockTally(space_of(actor.defaults), block_rows.all_of(conn, block_set))
        for label, lines in part.blocks.items():
            for _, line in lines:
                if isinstance(line, BlockLine):
                    _put(tally, line, actor.defaults, exists=label in stored_labels | locked_labels)
                    stored_labels.add(label)
                yield 0


def _put(
    tally: BlockTally, line: BlockLine, defaults: Mapping[str, CoreBlock], *, exists: bool
) -> None:
    """Count a block as the importer writes it."""
    if not exists:
        restored = CoreBlock(line.label, line.value, line.description)
        tally.put(line.label, None if line.deleted else restored)
    elif not line.deleted:
        change = BlockEdit(line.value, line.description, line.limit)
        try:
            edited = put_block(line.label, change, defaults)(tally.blocks.get(line.label))
        except BlockReadOnly:
            return
        tally.put(line.label, edited)


def _labels(conn: Connection, block_set: block_rows.BlockSet) -> set[str]:
    """Return the labels that have a row, also those of deleted blocks."""
    label_query = select(b.label).where(b.scope_id == block_set.scope_id, b.branch == 0)
    if block_set.scope_id is not None:
        return set(conn.execute(label_query).scalars())
    return set()
