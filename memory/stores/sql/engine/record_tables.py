"""What finished jobs read and kept, and what their filters dropped (see `job_records`).

They have no foreign key, so that a scope is removed before them.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, Table

from memory.stores.sql.engine.columns import Key, at, key, metadata, short, text

job_records = Table(
    "job_records",
    metadata,
    key(),
    Column("scope_id", Key, nullable=False),
    text("kind"),
    *(Column(name, Integer, nullable=False) for name in ("read", "shown", "proposed", "kept")),
    at(),
    Index("ix_job_records_scope_id", "scope_id", "id"),
)

dropped = Table(
    "dropped",
    metadata,
    key(),
    Column("scope_id", Key, nullable=False),
    Column("conversation", Key, index=True),
    Column("job", Key, nullable=False, index=True),
    text("stage"),
    text("reason"),
    Column("message", short(64)),
    text("text"),
    at(),
    Index("ix_dropped_scope_id", "scope_id", "id"),
)
