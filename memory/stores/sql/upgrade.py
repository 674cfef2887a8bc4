"""Migrates a database to this version's schema.

The only module that uses Alembic; an empty database does not need it.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

from sqlalchemy import URL, Connection, create_engine, delete, insert, inspect, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from memory.errors import StoreUnavailable
from memory.stores.sql import schema

UPGRADING = 7_205_603  # Postgres' number of the lock that one upgrade at a time holds
TRIES, PAUSE_SECONDS = 40, 1.0
LOCKED = {"55P03", "40P01"}  # a lock was not free in time, a deadlock


def upgrade(url: str) -> str:
    """Run missing migrations, or create the schema; return the revision.

    A newer database stays as it is.

    Blocks, and needs a thread without a running event loop. Raises StoreUnavailable.
    """
    try:
        if (target := make_url(url)).get_backend_name() == "sqlite":
            _here(target)
        else:
            asyncio.run(_there(target))
    except (SQLAlchemyError, OSError) as e:
        raise StoreUnavailable(
            f"the database could not be upgraded: {type(e).__name__}: {e}"
        ) from e
    return schema.REVISION


def _here(url: URL) -> None:
    """Open a file with Python's own driver first.

    If it fails, the asynchronous driver would leave a thread behind.
    """
    engine = create_engine(url.set(drivername="sqlite"))
    try:
        with engine.begin() as conn:
            _migrate(conn)
    finally:
        engine.dispose()


async def _there(url: URL) -> None:
    """Migrate a server's database while workers serve it.

    Its locks are waited for briefly, since whoever comes after would wait too, and asked for again.
    """
    arguments = import_module("memory.stores.sql.postgres_statements").cache_arguments(0)
    engine = create_async_engine(url, connect_args=arguments)
    try:
        for tries in range(1, TRIES + 1):
            try:
                async with engine.begin() as conn:
                    await conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADING})")
                    await conn.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
                    await conn.run_sync(_migrate)
                return
            except DBAPIError as e:
                if tries == TRIES or getattr(e.orig, "sqlstate", "") not in LOCKED:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await engine.dispose()


def _migrate(conn: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": conn})
    config.set_main_option(
        "script_location", str(Path(__file__).parent / "migrations").replace("%", "%%")
    )
    config.set_main_option("path_separator", "os")
    if conn.dialect.name != "sqlite" and "scopes" not in inspect(conn).get_table_names():
        # The migrations began with SQLite's tables.
        import_module("memory.stores.sql.postgres_schema").create(conn)
        command.stamp(config, "head")
        _note_readable(conn)
        return
    if (_version(conn) or "") > schema.REVISION:
        return  # whoever is newer has migrated it
    command.upgrade(config, "head")
    _note_readable(conn)


def _note_readable(conn: Connection) -> None:
    """Note the oldest version that may serve the database from now on."""
    m = schema.meta.c
    conn.execute(delete(schema.meta).where(m.name == "readable_by"))
    conn.execute(insert(schema.meta).values(name="readable_by", value=schema.READABLE_BY))


def _version(conn: Connection) -> str | None:
    if "alembic_version" not in inspect(conn).get_table_names():
        return None
    found: str | None = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return found
