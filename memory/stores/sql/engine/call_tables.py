"""Memory tools that were called outside a conversation, and tools of servers that were accepted.

Neither has a foreign key: a scope is removed before its records, and a server's tools are nobody's.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, LargeBinary, Table

from memory.stores.sql.engine.columns import Key, Words, at, key, metadata, short, text

# The explain record of one call. reader: who called, so that `seen`, the versions of the blocks
# that this reader was shown, is found again by the next call.
call_records = Table(
    "call_records",
    metadata,
    key(),
    Column("scope_id", Key, nullable=False),
    Column("reader", LargeBinary, nullable=False),
    text("seen", "{}"),
    text("record"),
    at(),
    Index("ix_call_records_scope_id", "scope_id", "reader", "id"),
)

# The application's (see `schema`). server: a digest of its URL or command. accepted: what is
# offered, listed: what the server lists now; each NULL where there is none.
tool_pins = Table(
    "tool_pins",
    metadata,
    Column("entry", short(64), primary_key=True),
    Column("server", short(64), primary_key=True),
    Column("name", Words, primary_key=True),
    Column("accepted_hash", short(64)),
    Column("accepted", Words),
    Column("listed_hash", short(64)),
    Column("listed", Words),
    Column("updated_at", Float, nullable=False),
)
