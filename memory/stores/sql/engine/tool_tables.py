"""Calls of the operator's tools, and their long results (see `tool_calls`, `tool_results`)."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, Table, UniqueConstraint

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

# node, round, place: of the turn's node, of the round in it, of the call in the reply. state:
# started, done, refused, unknown. status: how it ended, as the explain record has it. arguments:
# without secrets. digest: of the arguments as they came. scope_id: NULL for a run of an operator
# who names no user.
tool_calls = Table(
    "tool_calls",
    metadata,
    key(),
    Column("node", Key, nullable=False),
    Column("round", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("scope_id", Key, ForeignKey("scopes.id")),
    text("tenant"),
    text("entry"),
    text("name"),
    Column("version", Integer, nullable=False, server_default="0"),
    text("effect"),
    Column("state", short(16), nullable=False),
    Column("status", short(16), nullable=False, server_default=""),
    text("arguments"),
    Column("digest", short(64), nullable=False, server_default=""),
    Column("result", Words),
    text("origin"),
    text("rule"),
    text("approval"),
    text("request_id"),
    text("actor"),
    Column("milliseconds", Float, nullable=False, server_default="0"),
    Column("cost_usd", Float, nullable=False, server_default="0"),
    at(),
    UniqueConstraint("node", "round", "place"),
    Index("ix_tool_calls_scope_id", "scope_id"),
    Index("ix_tool_calls_tenant", "tenant", "id"),
)

tool_results = Table(
    "tool_results",
    metadata,
    Column("id", short(64), primary_key=True),
    scope_column(),
    text("name"),
    text("content"),
    at(),
    Index("ix_tool_results_scope_id", "scope_id"),
    Index("ix_tool_results_created_at", "created_at"),
)
