"""The Python tools that tenants made: rows, their versions, undo.

A row of a deleted tool stays with its versions, so that undo restores it. What a definition says is
the caller's: here it is text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, func, insert, select, update

from memory.errors import Conflict, NotFound
from memory.ids import clock, new_id, new_key
from memory.stores.sql.engine.schema import python_tool_tables as t
from memory.stores.sql.rows.blocks import EditSource

c = t.python_tools.c
v = t.python_tool_versions.c
# Of a tenant.
MAX_TOOLS = 1000
MAX_LISTED = 100_000
VERSION_MEMBERS = ("version", "before", "after", "actor", "request_id", "created_at")


class StoredTool(msgspec.Struct, frozen=True):
    """One tool. definition, listed: JSON text. Times are Unix times."""

    tenant: str
    name: str
    definition: str
    listed: str
    version: int
    created_at: float
    updated_at: float
    updated_by: str


@dataclass(frozen=True, slots=True)
class ToolText:
    """What is written of a tool. listed: of the definition, for lists of all tools."""

    definition: str
    listed: str


@dataclass(frozen=True, slots=True)
class _ToolChange:
    """A definition before and after (None: absent). undoes: the version that this undoes."""

    before: str | None
    after: ToolText | None
    undoes: int | None = None


def find(conn: Connection, tenant: str, name: str) -> StoredTool | None:
    """Return a tenant's tool."""
    row = _row(conn, tenant, name)
    if row is None or row.deleted:
        return None
    return _stored(row)


def list_tools(conn: Connection) -> list[tuple[str, str, int, str]]:
    """Return tenant, name, version and `listed` of every tool, in the order of names."""
    query = select(c.tenant, c.name, c.version, c.listed).where(c.deleted.is_(False))
    rows = conn.execute(query.order_by(c.tenant, c.name).limit(MAX_LISTED))
    return [(row.tenant, row.name, row.version, row.listed) for row in rows]


def edit(
    conn: Connection, tool_name: tuple[str, str], after: ToolText | None, source: EditSource
) -> StoredTool | None:
    """Write a tool, or delete it (None), with a version row; return it as it is now.

    An edit that changes nothing writes nothing. Raises Conflict, NotFound.
    """
    tenant, name = tool_name
    row = _row(conn, tenant, name)
    old_tool = None if row is None or row.deleted else _stored(row)
    version = old_tool.version if old_tool else 0
    if source.expect is not None and source.expect != version:
        raise Conflict(
            f"the tool {name!r} is at version {version}, not {source.expect}: read it again and "
            "repeat the edit"
        )
    if old_tool is None and after is None:
        raise NotFound(f"there is no tool {name!r}")
    if old_tool is not None and after is not None and after.definition == old_tool.definition:
        return old_tool
    if old_tool is None:
        _check_room(conn, tenant)
    change = _ToolChange(old_tool.definition if old_tool else None, after)
    return _write(conn, tool_name, row, change, source)


def find_undone(conn: Connection, tenant: str, name: str) -> tuple[int, str | None]:
    """Return the newest version that is not undone yet, and the definition before it.

    Raises NotFound.
    """
    row = _row(conn, tenant, name)
    if row is None:
        raise NotFound(f"there is no tool {name!r} with a history")
    undone = select(v.undoes).where(v.tool == row.id, v.undoes.is_not(None))
    edits = select(v.version, v.before).where(
        v.tool == row.id, v.undoes.is_(None), v.version.not_in(undone)
    )
    last_edit = conn.execute(edits.order_by(v.version.desc()).limit(1)).first()
    if last_edit is None:
        raise NotFound(f"nothing is left to undo in the tool {name!r}")
    return last_edit.version, last_edit.before


def undo(
    conn: Connection,
    tool_name: tuple[str, str],
    undoes: int,
    after: ToolText | None,
    source: EditSource,
) -> StoredTool | None:
    """Write what stood before a version, as a new version. Raises Conflict."""
    row = _row(conn, *tool_name)
    version, _ = find_undone(conn, *tool_name)
    if row is None or version != undoes:
        raise Conflict(f"the tool {tool_name[1]!r} changed meanwhile: read it again and repeat")
    if row.deleted and after is not None:
        _check_room(conn, tool_name[0])
    old_definition = None if row.deleted else row.definition
    return _write(conn, tool_name, row, _ToolChange(old_definition, after, undoes), source)


def versions(
    conn: Connection, tool_name: tuple[str, str], before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return versions, newest first. Raises NotFound for a name that no tool ever had."""
    row = _row(conn, *tool_name)
    if row is None:
        raise NotFound(f"there is no tool {tool_name[1]!r}")
    query = select(t.python_tool_versions).where(v.tool == row.id)
    if before is not None:
        query = query.where(v.version < before)
    rows = conn.execute(query.order_by(v.version.desc()).limit(limit))
    return [{name: getattr(version, name) for name in VERSION_MEMBERS} for version in rows]


def _row(conn: Connection, tenant: str, name: str) -> Row[Any] | None:
    return conn.execute(select(t.python_tools).where(c.tenant == tenant, c.name == name)).first()


def _stored(row: Row[Any]) -> StoredTool:
    return StoredTool(
        row.tenant,
        row.name,
        row.definition,
        row.listed,
        row.version,
        row.created_at,
        row.updated_at,
        row.updated_by,
    )


def _check_room(conn: Connection, tenant: str) -> None:
    is_tenants = c.tenant == tenant, c.deleted.is_(False)
    count = conn.execute(
        select(func.count()).select_from(t.python_tools).where(*is_tenants)
    ).scalar()
    if (count or 0) >= MAX_TOOLS:
        raise Conflict(f"there are {count} Python tools, and {MAX_TOOLS} at most. Delete one.")


def _write(
    conn: Connection,
    tool_name: tuple[str, str],
    row: Row[Any] | None,
    change: _ToolChange,
    source: EditSource,
) -> StoredTool | None:
    """Write the tool and its version row. Raises Conflict."""
    now, new_text = clock.now(), change.after
    version = (row.version if row is not None else 0) + 1
    ident = row.id if row is not None else new_id("tool")
    values: Mapping[str, Any] = {
        "definition": new_text.definition if new_text else "{}",
        "listed": new_text.listed if new_text else "{}",
        "version": version,
        "deleted": new_text is None,
        "updated_at": now,
        "updated_by": source.actor,
    }
    if row is None:
        fixed = {"id": ident, "tenant": tool_name[0], "name": tool_name[1], "created_at": now}
        conn.execute(insert(t.python_tools).values(**fixed, **values))
    else:
        unchanged = (c.id == ident) & (c.version == row.version)
        if not conn.execute(update(t.python_tools).where(unchanged).values(**values)).rowcount:
            raise Conflict(f"the tool {tool_name[1]!r} changed meanwhile: read it again and repeat")
    conn.execute(
        insert(t.python_tool_versions).values(
            id=new_key(),
            tool=ident,
            version=version,
            before=change.before,
            after=new_text.definition if new_text else None,
            actor=source.actor,
            request_id=source.request_id,
            undoes=change.undoes,
            created_at=now,
        )
    )
    return None if new_text is None else find(conn, *tool_name)
