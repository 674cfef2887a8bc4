"""Rows of how models use the memory tools they are offered; they name no user."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, select

from memory.core.autonomy import ModelRecord
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import put_row

# The most recent ones are kept, and read at the start.
MAX_MODELS = 1000
# Rows removed in a transaction.
BATCH = 500
r = t.model_records.c


def load(conn: Connection) -> dict[str, ModelRecord]:
    """Return the records of the models that were used last, by the model's name."""
    query = select(t.model_records).order_by(r.updated_at.desc()).limit(MAX_MODELS)
    return {
        row.model: ModelRecord(row.offered, row.called, row.silent) for row in conn.execute(query)
    }


def expire(conn: Connection) -> int:
    """Remove so many of the records beyond the newest MAX_MODELS: clients may invent names.

    Returns their number; call again until it is 0.
    """
    models_by_time = select(r.model).order_by(r.updated_at.desc(), r.model)
    oldest_models = conn.execute(models_by_time.offset(MAX_MODELS).limit(BATCH)).scalars().all()
    if not oldest_models:
        return 0
    return conn.execute(delete(t.model_records).where(r.model.in_(oldest_models))).rowcount


def save(conn: Connection, records: Mapping[str, ModelRecord]) -> None:
    """Write records, in place of what was known of these models."""
    for model, record in records.items():
        put_row(
            conn,
            t.model_records,
            ("model",),
            model=model,
            offered=record.offered,
            called=record.called,
            silent=record.silent,
            updated_at=clock.now(),
        )
