"""Alembic's environment: runs over the connection that `engine.upgrade` gives it."""

from __future__ import annotations

from alembic import context

from memory.stores.sql.engine import schema

connection = context.config.attributes["connection"]
# SQLite changes a table by copying it: batches.
context.configure(connection=connection, target_metadata=schema.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
