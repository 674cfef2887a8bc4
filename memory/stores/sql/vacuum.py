"""Removes erased data from the database's files."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from memory.errors import StoreUnavailable
from memory.stores.sql import schema

# In this order: an index keeps erased terms until it is merged, the file keeps freed pages until it
# is rewritten, and the
# log keeps old pages until it is cut.
# our tables
SQLITE = (*(f"INSERT INTO {name}({name}) VALUES ('optimize')" for name in schema.FTS), "VACUUM")


async def vacuum(url: str) -> None:
    """Rewrite the database, which may be in use.

    Raises StoreUnavailable, also if readers prevented truncating the log.
    """
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", connect_args=_arguments(url))
    lite = engine.dialect.name == "sqlite"
    try:
        async with engine.connect() as conn:
            for statement in SQLITE if lite else ("VACUUM FULL",):
                await conn.exec_driver_sql(statement)
            cut = (
                (await conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).first()
                if lite
                else None
            )
    except (SQLAlchemyError, OSError) as e:
        raise StoreUnavailable(
            f"the database could not be rewritten: {type(e).__name__}: {e}"
        ) from e
    finally:
        await engine.dispose()
    if cut is not None and cut[0]:
        raise StoreUnavailable(
            "readers kept the database's log from being cut: run it again when the gateway is "
            "idle, or stop it first"
        )


def _arguments(url: str) -> dict[str, Any]:
    """Return what the driver is given: on a server it keeps no statements, as a pooler may not."""
    if make_url(url).get_backend_name() == "sqlite":
        return {}
    found: dict[str, Any] = import_module("memory.stores.sql.postgres_statements").cache_arguments(
        0
    )
    return found
