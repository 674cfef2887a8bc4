"""The block `skills`, which tells the model what skills there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection, select

from memory.core.blocks import CoreBlock
from memory.core.skill_text import ACTIVE
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.skill_tables import skills
from memory.stores.sql.rows.blocks import BlockSet, EditSource
from memory.stores.sql.rows.list_block import ListBlock

LABEL = "skills"
DESCRIPTION = "Tasks done before. skill_open shows how: open one before you do such a task."
MAX_CHARACTERS = 16_000
LIST = ListBlock(LABEL, DESCRIPTION, MAX_CHARACTERS)
s = skills.c


class Align(Protocol):
    """Brings a few lists in line with the settings, see `align`."""

    def __call__(self, conn: Connection, after: int) -> int: ...


@dataclass(frozen=True, slots=True)
class SkillListing:
    """How skills are listed. blocks: the operator's. max_shown: how many at most, 0 for no list."""

    blocks: Mapping[str, CoreBlock]
    max_shown: int = 20


def refresh(conn: Connection, scope_id: int, listing: SkillListing, source: EditSource) -> None:
    """Write the list of a scope's active skills into its block, if that differs."""
    lines = list_lines(conn, scope_id, listing.max_shown)
    value = None
    if lines:
        value = "\n".join(lines)
    LIST.write(conn, BlockSet(scope_id, listing.blocks), value, source)


def list_lines(conn: Connection, scope_id: int, max_shown: int) -> list[str]:
    """Return a line for each active skill, the most useful first.

    Those that helped about as often stand in the order in which they were made: each use that
    changed the order would cost a prompt that is cached.
    """
    query = select(skills).where(s.scope_id == scope_id, s.status == ACTIVE)
    rows = conn.execute(query.order_by(s.created_at, s.id)).all()
    lines: list[str] = []
    free_characters = MAX_CHARACTERS
    for row in sorted(rows, key=_usefulness, reverse=True)[:max_shown]:
        line = f"{row.name}: {row.description}"
        free_characters -= len(line) + 1
        if free_characters < 0:
            break
        lines.append(line)
    return lines


def _usefulness(row: Any) -> int:
    return max(0, int(row.successes) - int(row.failures)).bit_length()


def align(conn: Connection, listing: SkillListing, after: int, max_rows: int) -> int:
    """Bring a few lists in line with the settings; return the last scope's key, 0 at the end.

    Where skills are off none is shown; where they were switched on again, they are. after: the key
    that was returned before. A list for which a user's blocks have no room is passed over.
    """
    block_columns = t.blocks.c
    is_shown = (block_columns.label == LABEL) & (block_columns.description == DESCRIPTION)
    is_shown &= block_columns.deleted.is_(False) & block_columns.read_only.is_(True)
    if listing.max_shown:
        # A block of this label that somebody else made stays, too.
        with_block = select(block_columns.scope_id).where(
            block_columns.label == LABEL, block_columns.deleted.is_(False)
        )
        without_block = s.scope_id.not_in(with_block)
        key_column = s.scope_id
        condition = (s.status == ACTIVE) & without_block
    else:
        key_column = block_columns.scope_id
        condition = is_shown
    query = select(key_column).distinct().where(condition, key_column > after)
    scope_ids = conn.execute(query.order_by(key_column).limit(max_rows)).scalars().all()
    for scope_id in scope_ids:
        refresh(conn, scope_id, listing, EditSource("skills"))
    if scope_ids:
        return int(scope_ids[-1])
    return 0


def extend(conn: Connection, scope_id: int) -> None:
    """List skills that a merge brought, where a list is shown already.

    Where none is, the hourly upkeep begins one if skills are on.
    """
    query = select(t.blocks).where(t.blocks.c.scope_id == scope_id, t.blocks.c.label == LABEL)
    row = conn.execute(query).first()
    if row is not None and LIST.is_list(row) and not row.deleted:
        refresh(conn, scope_id, SkillListing({}), EditSource("skills"))
