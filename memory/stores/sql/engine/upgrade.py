"""Migrates a database to this version's schema.

The only module that uses Alembic; an empty database does not need it.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, delete, insert, inspect
from sqlalchemy.exc import SQLAlchemyError

from memory.errors import StoreUnavailable
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.database_kinds import load_maintenance
from memory.stores.sql.engine.sql_driver import sql_driver


def upgrade(url: str) -> str:
    """Run missing migrations, or create the schema; return the revision.

    A newer database stays as it is.

    Blocks, and needs a thread without a running event loop. Raises StoreUnavailable.
    """
    try:
        load_maintenance(url).migrate(url, _migrate)
    except (SQLAlchemyError, OSError) as e:
        raise StoreUnavailable(
            f"the database could not be upgraded: {type(e).__name__}: {e}"
        ) from e
    return schema.REVISION


def _migrate(conn: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": conn})
    config.set_main_option(
        "script_location", str(Path(__file__).parents[1] / "migrations").replace("%", "%%")
    )
    config.set_main_option("path_separator", "os")
    driver = sql_driver(conn)
    if driver.is_shared and "scopes" not in inspect(conn).get_table_names():
        # The migrations began with the tables of a file.
        driver.create_tables(conn)
        command.stamp(config, "head")
        _note_readable(conn)
        return
    if (_version(conn) or "") > schema.REVISION:
        # Whoever is newer has migrated it.
        return
    command.upgrade(config, "head")
    _note_readable(conn)


def _note_readable(conn: Connection) -> None:
    """Note the oldest version that may serve the database from now on."""
    meta_columns = schema.meta.c
    conn.execute(delete(schema.meta).where(meta_columns.name == "readable_by"))
    conn.execute(insert(schema.meta).values(name="readable_by", value=schema.READABLE_BY))


def _version(conn: Connection) -> str | None:
    if "alembic_version" not in inspect(conn).get_table_names():
        return None
    revision: str | None = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision
