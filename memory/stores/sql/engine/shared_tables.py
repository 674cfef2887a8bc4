"""Blocks that several memories show, their members and versions (see `shared_blocks`)."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, Table, UniqueConstraint

from memory.stores.sql.engine.columns import Key, Words, at, metadata, short, text

# writers: who wrote each line, as JSON. outside: the count of edits that begin new epochs. deleted:
# it is none any more, but undo restores it. actor, user, agent: of the newest version.
shared_blocks = Table(
    "shared_blocks",
    metadata,
    Column("id", short(64), primary_key=True),
    text("tenant"),
    text("label"),
    text("description"),
    text("value"),
    text("writers", "[]"),
    Column("limit", Integer, nullable=False),
    Column("read_only", Boolean, nullable=False, server_default="0"),
    Column("default_write", Boolean, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False),
    Column("outside", Integer, nullable=False, server_default="0"),
    Column("deleted", Boolean, nullable=False, server_default="0"),
    at(),
    at("updated_at"),
    text("actor"),
    Column("user", Words),
    Column("agent", Words),
    Index("ix_shared_blocks_tenant", "tenant", "label", "id"),
)

# kind: user, agent, team, project, everyone. agent: of a user, "" for all of them. scope_id: always
# NULL; older versions, which serve beside this one while they are replaced, ask for it.
shared_members = Table(
    "shared_members",
    metadata,
    Column("block_id", short(64), primary_key=True),
    Column("kind", short(16), primary_key=True),
    Column("name", Words, primary_key=True),
    Column("agent", Words, primary_key=True),
    text("tenant"),
    Column("write", Boolean, nullable=False, server_default="0"),
    at("joined_at"),
    Column("scope_id", Key),
    Index("ix_shared_members_tenant", "tenant", "kind", "name"),
)

# before, after: the value, NULL where there was none, or where it was erased. writers: of the lines
# before, as JSON.
shared_versions = Table(
    "shared_versions",
    metadata,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("block_id", short(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("before", Words),
    Column("after", Words),
    Column("writers", Words),
    text("actor"),
    Column("user", Words),
    Column("agent", Words),
    Column("request_id", Words),
    Column("tool_call_id", Words),
    Column("undoes", Integer),
    at(),
    Index("ix_shared_versions_user", "user"),
    UniqueConstraint("block_id", "version"),
)

# Raised by each write to a tenant's shared blocks, teams, projects or their members: what is cached
# is compared. layered: the tenant ever had a team, a project or a passage of its own.
shared_changes = Table(
    "shared_changes",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("changes", Key, nullable=False, autoincrement=False),
    Column("layered", Boolean, nullable=False, server_default="0"),
)
