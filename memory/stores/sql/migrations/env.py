"""Alembic's environment: runs over the connection that `memory.stores.sql.upgrade` hands it."""

from __future__ import annotations

from alembic import context

from memory.stores.sql import schema

connection = context.config.attributes["connection"]
# SQLite changes a table by copying it: batches.
context.configure(connection=connection, target_metadata=schema.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
