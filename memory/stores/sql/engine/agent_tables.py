"""Agents that a tenant made, their versions (see `agents`), and who waits for their turns."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Integer, Table, UniqueConstraint

from memory.stores.sql.engine.columns import Key, Words, at, metadata, short, text

# profile: its members, as JSON. listed: those that lists of all need. deleted: it is none any more,
# but undo restores it.
agents = Table(
    "agents",
    metadata,
    Column("id", short(64), primary_key=True),
    text("tenant"),
    text("name"),
    text("profile", "{}"),
    text("listed", "{}"),
    Column("version", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    at(),
    at("updated_at"),
    text("updated_by"),
    UniqueConstraint("tenant", "name"),
)

# before, after: the profile, NULL where there was none. memberships: the shared blocks of which a
# deleted agent was a member, as JSON; NULL for none.
agent_versions = Table(
    "agent_versions",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("agent", short(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("before", Words),
    Column("after", Words),
    text("actor"),
    Column("request_id", Words),
    Column("undoes", Integer),
    at(),
    Column("memberships", Words),
    UniqueConstraint("agent", "version"),
)

# holder: the worker that has a turn, or waits for one; it has one row for each agent. position: in
# the order in which they came.
agent_turns = Table(
    "agent_turns",
    metadata,
    Column("tenant", Words, primary_key=True, server_default=""),
    Column("agent", Words, primary_key=True, server_default=""),
    Column("holder", Key, primary_key=True, autoincrement=False),
    Column("position", Key, nullable=False),
)
