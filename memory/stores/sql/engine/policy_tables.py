"""The policies of users (see `policies`)."""

from __future__ import annotations

from sqlalchemy import Column, Table

from memory.stores.sql.engine.columns import Words, at, metadata, text

# What the memory may do for a user, where that is less than everything, and their time zone.
# tools: patterns of the operator's tools that they may have, as JSON; empty for all. layers: those
# that their requests read, with commas; NULL for all of them.
user_policies = Table(
    "user_policies",
    metadata,
    Column("tenant", Words, primary_key=True),
    Column("user", Words, primary_key=True),
    text("memory", "full"),
    at("updated_at"),
    text("timezone"),
    Column("layers", Words),
    text("tools"),
)
