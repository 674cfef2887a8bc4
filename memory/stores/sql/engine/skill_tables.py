"""Skills with their versions and uses, and what reflections proposed (see the row modules)."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, Table, UniqueConstraint

from memory.stores.sql.engine.columns import (
    Key,
    Words,
    at,
    key,
    metadata,
    scope_column,
    short,
    text,
)

# steps: a digest of the names of the calls it was made from, "" for one that a person wrote.
# recent: how its newest uses ended, a letter each. made_from: ids of turns, as JSON. status: also
# `refused`, of a sequence whose text could not be used, and `deleted`, so that none is made again.
skills = Table(
    "skills",
    metadata,
    Column("id", short(64), primary_key=True),
    scope_column(),
    text("name"),
    text("description"),
    text("text"),
    Column("status", short(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("steps", short(64), nullable=False, server_default=""),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("uses", Integer, nullable=False, server_default="0"),
    Column("successes", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("recent", short(16), nullable=False, server_default=""),
    text("made_from", "[]"),
    at(),
    at("updated_at"),
    Index("ix_skills_scope_id", "scope_id"),
)

# before, after: its text. description, status: as they are since then.
skill_versions = Table(
    "skill_versions",
    metadata,
    key(),
    scope_column(),
    Column("skill", short(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("before", Words),
    Column("after", Words),
    text("description"),
    Column("status", short(16), nullable=False, server_default=""),
    text("actor"),
    Column("request_id", Words),
    at(),
    UniqueConstraint("skill", "version"),
    Index("ix_skill_versions_scope_id", "scope_id"),
)

# A use whose turn is not over as far as is known. request_id: of the request that opened the skill.
skill_uses = Table(
    "skill_uses",
    metadata,
    key(),
    scope_column(),
    Column("skill", short(64), nullable=False),
    text("request_id"),
    at(),
    Index("ix_skill_uses_scope_id", "scope_id"),
)

# changes: as JSON. updated_by: who decided.
reflections = Table(
    "reflections",
    metadata,
    Column("id", short(64), primary_key=True),
    scope_column(),
    Column("status", short(16), nullable=False),
    text("changes", "[]"),
    at(),
    Column("decided_at", Float),
    Column("decided_by", Words),
    Index("ix_reflections_scope_id", "scope_id"),
)

# When a scope's memory was looked at last, and a digest of it if nothing was to be done.
reflection_runs = Table(
    "reflection_runs",
    metadata,
    Column("scope_id", Key, primary_key=True, autoincrement=False),
    Column("ran_at", Float, nullable=False, server_default="0"),
    Column("settled", short(64), nullable=False, server_default=""),
)
