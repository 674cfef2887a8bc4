"""Messages that wait for an agent (see `agent_inbox`)."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Table

from memory.stores.sql.engine.columns import Key, Words, at, metadata, short, text

# owner: whose memory with the agent; of home `agent` that is the agent's own. sender: an agent or
# what an app calls itself. said_by: the user in whose turn it was sent, NULL for none. turn: the
# node whose answer delivered it.
agent_inbox = Table(
    "agent_inbox",
    metadata,
    Column("id", short(64), primary_key=True),
    text("tenant"),
    text("agent"),
    text("owner"),
    text("sender"),
    Column("said_by", Words),
    text("text"),
    at(),
    Column("delivered_at", Float),
    Column("turn", Key),
    Index("ix_agent_inbox_owner", "tenant", "owner", "agent", "created_at"),
    Index("ix_agent_inbox_said_by", "tenant", "said_by"),
    Index("ix_agent_inbox_created_at", "created_at"),
)
