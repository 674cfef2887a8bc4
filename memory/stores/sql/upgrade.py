"""Migrates a database to this version's schema.

The only module that uses Alembic; an empty database does not need it.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

from sqlalchemy import URL, Connection, create_engine, inspect, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from memory.errors import StoreUnavailable
from memory.stores.sql import schema


def upgrade(url: str) -> str:
    """Run missing migrations, or create the schema; return the revision.

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
    arguments = import_module("memory.stores.sql.postgres_statements").cache_arguments(0)
    engine = create_async_engine(url, connect_args=arguments)
    try:
        async with engine.begin() as conn:
            await conn.run_sync(_migrate)
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
        return
    command.upgrade(config, "head")
