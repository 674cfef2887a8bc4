"""The block `files`, which tells the model what files there are. It is written by jobs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, select

from memory.core.blocks import CoreBlock
from memory.stores.sql.engine.file_tables import files
from memory.stores.sql.rows.blocks import BlockSet, EditSource
from memory.stores.sql.rows.list_block import ListBlock

LINES = 50
CHARACTERS = 4000
DESCRIPTION = "The user's files. file_search, file_grep and file_open read them."
LIST = ListBlock("files", DESCRIPTION, CHARACTERS)
# Of a name in a line.
NAME_CHARACTERS = 200
BlockDefaults = Callable[[], Mapping[str, CoreBlock]]
f = files.c


def refresh(conn: Connection, scope_id: int, defaults: BlockDefaults) -> None:
    """Write the list of a scope's files into its block, if that differs."""
    rows = conn.execute(select(files).where(f.scope_id == scope_id).order_by(f.name)).all()
    value = None
    if rows:
        value = list_lines([describe(row) for row in rows])
    LIST.write(conn, BlockSet(scope_id, defaults()), value, EditSource("files"))


def describe(row: Any) -> str:
    """Return the line of a file."""
    name = row.name[:NAME_CHARACTERS]
    if row.status == "failed":
        return f"{name} (cannot be read: {row.reason[:100]})"
    if row.status != "ready":
        return f"{name} (is being read)"
    if row.pages is None:
        unit, count = ("line", row.lines)
    else:
        unit, count = ("page", row.pages)
    return f"{name} ({count} {unit}{'' if count == 1 else 's'})"


def list_lines(lines: list[str]) -> str:
    """Return lines as a block's value, within its bounds."""
    listed_lines: list[str] = []
    # For the line that tells of the others.
    free_characters = CHARACTERS - 40
    for line in lines[:LINES]:
        free_characters -= len(line) + 1
        if free_characters < 0:
            break
        listed_lines.append(line)
    if len(listed_lines) < len(lines):
        listed_lines.append(f"({len(lines) - len(listed_lines)} more)")
    return "\n".join(listed_lines)
