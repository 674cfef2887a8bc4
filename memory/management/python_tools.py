"""Python tools of tenants from outside: made, changed, listed, undone."""

from __future__ import annotations

from typing import Any

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import python_tools as rows
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.python_tools import StoredTool, ToolText

__all__ = [
    "StoredTool",
    "ToolText",
    "edit_tool",
    "find_tool",
    "find_undone",
    "list_tools",
    "list_versions",
    "undo_edit",
]
# Tenant and name.
Name = tuple[str, str]


async def find_tool(memory: Memory, tool_name: Name) -> StoredTool | None:
    """Return a tenant's tool. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, *tool_name))


async def list_tools(memory: Memory) -> list[tuple[str, str, int, str]]:
    """Return tenant, name, version and `listed` of every tool. Raises StoreUnavailable."""
    return await read(memory, rows.list_tools)


async def list_versions(
    memory: Memory, tool_name: Name, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List a tool's versions, newest first, before a version. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: rows.versions(conn, tool_name, before, limit))


async def find_undone(memory: Memory, tool_name: Name) -> tuple[int, str | None]:
    """Return what an undo would undo, and the definition before it. Raises NotFound."""
    return await read(memory, lambda conn: rows.find_undone(conn, *tool_name))


async def edit_tool(
    memory: Memory, tool_name: Name, after: ToolText | None, source: EditSource
) -> StoredTool | None:
    """Write a tool, or delete it. Raises Conflict, NotFound, StoreUnavailable."""
    return await memory.db.write(
        lambda conn: rows.edit(conn, tool_name, after, source), lock=owner_lock(tool_name[0], "")
    )


async def undo_edit(
    memory: Memory, tool_name: Name, undoes: int, after: ToolText | None, source: EditSource
) -> StoredTool | None:
    """Undo a version; return the tool, None if it is gone. Raises Conflict, StoreUnavailable."""
    return await memory.db.write(
        lambda conn: rows.undo(conn, tool_name, undoes, after, source),
        lock=owner_lock(tool_name[0], ""),
    )
