"""The Python tools that tenants made, and their versions (see `rows.python_tools`)."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, UniqueConstraint

from memory.stores.sql.engine.columns import Key, Words, at, metadata, short, text

# definition: its source and members, as JSON. listed: what lists of all tools need, as JSON.
# deleted: it is none any more, but its versions stay, and undo restores it.
python_tools = Table(
    "python_tools",
    metadata,
    Column("id", short(64), primary_key=True),
    text("tenant"),
    text("name"),
    text("definition", "{}"),
    text("listed", "{}"),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    at(),
    at("updated_at"),
    text("updated_by"),
    UniqueConstraint("tenant", "name"),
)

# before, after: the definition, NULL where there was none.
python_tool_versions = Table(
    "python_tool_versions",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("tool", short(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("before", Words),
    Column("after", Words),
    text("actor"),
    Column("request_id", Words),
    Column("undoes", Integer),
    at(),
    UniqueConstraint("tool", "version"),
)
