"""What is done to a server's database that no memory has open: migrations, and rewriting it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from memory.stores.sql.engine.postgres.postgres_driver import DRIVER
from memory.stores.sql.engine.postgres.postgres_statements import cache_arguments
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION

# Postgres' number of the lock that one upgrade at a time holds.
UPGRADING = 7_205_603
TRIES = 40
PAUSE_SECONDS = 1.0
# A lock was not free in time, a deadlock.
LOCKED = {"55P03", "40P01"}


def migrate(url: str, work: Callable[[Connection], None]) -> None:
    """Migrate a database while workers serve it. Needs a thread without a running event loop."""
    asyncio.run(_migrate(url, work))


async def _migrate(url: str, work: Callable[[Connection], None]) -> None:
    """Ask for locks again that are not free.

    They are waited for briefly, since whoever comes after would wait too.
    """
    engine = create_async_engine(
        url, connect_args=cache_arguments(0), execution_options={DRIVER_OPTION: DRIVER}
    )
    try:
        for tries in range(1, TRIES + 1):
            try:
                async with engine.begin() as conn:
                    await conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADING})")
                    await conn.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
                    await conn.run_sync(work)
                return
            except DBAPIError as e:
                if tries == TRIES or getattr(e.orig, "sqlstate", "") not in LOCKED:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await engine.dispose()


async def rewrite(url: str) -> None:
    """Rewrite the database, which may be in use. No statements are kept, as a pooler may not."""
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", connect_args=cache_arguments(0))
    try:
        async with engine.connect() as conn:
            await conn.exec_driver_sql("VACUUM FULL")
    finally:
        await engine.dispose()
