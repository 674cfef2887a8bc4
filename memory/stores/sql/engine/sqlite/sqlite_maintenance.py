"""What is done to a SQLite file that no memory has open: migrations, and rewriting it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from memory.errors import StoreUnavailable
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER

# In this order: an index keeps erased terms until it is merged, the file keeps freed pages until it
# is rewritten, and the log keeps old pages until it is cut.
REWRITE = (*(f"INSERT INTO {name}({name}) VALUES ('optimize')" for name in schema.FTS), "VACUUM")


def migrate(url: str, work: Callable[[Connection], None]) -> None:
    """Migrate a file, over Python's own driver.

    If it fails, the asynchronous driver would leave a thread behind.
    """
    target = make_url(url).set(drivername="sqlite")
    engine = create_engine(target, execution_options={DRIVER_OPTION: DRIVER})
    try:
        with engine.begin() as conn:
            work(conn)
    finally:
        engine.dispose()


async def rewrite(url: str) -> None:
    """Rewrite the file, which may be in use.

    Raises StoreUnavailable if readers prevented truncating the log.
    """
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as conn:
            for statement in REWRITE:
                await conn.exec_driver_sql(statement)
            checkpoint = (await conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).first()
    finally:
        await engine.dispose()
    if checkpoint is not None and checkpoint[0]:
        raise StoreUnavailable(
            "readers kept the database's log from being cut: run it again when the gateway is "
            "idle, or stop it first"
        )
