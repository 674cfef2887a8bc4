"""Teams and projects, and who is in them (see `teams` and `projects`)."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Table

from memory.stores.sql.engine.columns import Words, at, metadata, short, text

teams = Table(
    "teams",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("name", short(64), primary_key=True),
    text("description"),
    at(),
    at("updated_at"),
)

team_members = Table(
    "team_members",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("team", short(64), primary_key=True),
    Column("user", Words, primary_key=True),
    Column("write", Boolean, nullable=False, server_default="0"),
    at("joined_at"),
    Index("ix_team_members_user", "tenant", "user"),
)

# everyone: each named user may name it. write: who may name it may also share with it.
projects = Table(
    "projects",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("name", Words, primary_key=True),
    text("description"),
    Column("everyone", Boolean, nullable=False, server_default="0"),
    Column("write", Boolean, nullable=False, server_default="0"),
    at(),
    at("updated_at"),
)

# kind: user or team.
project_members = Table(
    "project_members",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("project", Words, primary_key=True),
    Column("kind", short(16), primary_key=True),
    Column("name", Words, primary_key=True),
    Index("ix_project_members_name", "tenant", "kind", "name"),
)
