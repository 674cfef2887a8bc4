"""Calls of tools that wait for a person (see `approvals`)."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Table

from memory.stores.sql.engine.columns import Words, at, metadata, short, text

# status: pending, allowed, denied, expired, cancelled. arguments: without secrets. user: NULL for
# nobody. alive_until: renewed by the turn that waits; past it nobody does any more.
tool_approvals = Table(
    "tool_approvals",
    metadata,
    Column("id", short(64), primary_key=True),
    text("tenant"),
    Column("user", Words),
    text("agent"),
    text("conversation"),
    text("request_id"),
    text("tool"),
    text("arguments"),
    Column("status", short(16), nullable=False),
    text("reason"),
    at(),
    at("expires_at"),
    at("alive_until"),
    Column("decided_at", Float),
    Column("decided_by", Words),
    Index("ix_tool_approvals_tenant", "tenant", "status", "created_at"),
    Index("ix_tool_approvals_created_at", "created_at"),
)
