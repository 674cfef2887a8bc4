"""Removes erased data from the database's files."""

from __future__ import annotations

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
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
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
