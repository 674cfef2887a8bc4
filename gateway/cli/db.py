"""`mnemogate db ...`: upgrade, back up, copy and vacuum the database."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.db_copy import copy
from gateway.cli.erase_again import erase_again
from gateway.cli.lockfile import running_url
from gateway.cli.options import (
    CommandFailed,
    config_option,
    json_option,
    print_result,
    settings_from,
    with_database,
)

if TYPE_CHECKING:
    from gateway.config.settings import Settings


@click.group(short_help="Upgrade, copy or clean the database.")
def db() -> None:
    """Upgrade, copy or clean the database.

    \b
    Examples:
      mnemogate db upgrade
      mnemogate db backup memory-of-today.db
      mnemogate db copy --to postgresql+asyncpg://mnemogate:password@db.example.com/mnemogate
      mnemogate db vacuum
    """


db.add_command(copy)
db.add_command(erase_again)


@db.command(short_help="Migrate the database schema.")
@json_option
@config_option
def upgrade(config: Path | None, as_json: bool) -> None:
    """Migrate the database schema to this version of Mnemogate.

    Back up the database first. On SQLite, stop the gateway. On Postgres gateways may keep running;
    replace them afterwards.

    \b
    Example:
      mnemogate db upgrade --config gateway.toml
    """
    from memory import StoreUnavailable
    from memory.stores.sql.engine.upgrade import upgrade as run

    settings = settings_from(config)
    if not settings.storage.is_postgres and (url := running_url(settings.data)):
        raise CommandFailed(f"The gateway at {url} uses this database. Stop it first.")
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        revision = run(settings.database)
    except StoreUnavailable as e:
        raise CommandFailed(f"{settings.database_shown}: {e}") from e
    database = settings.database_shown
    result = {"database": database, "version": revision}
    print_result(f"{database} is at version {revision}", result, as_json=as_json)


def upgrade_data(settings: Settings) -> None:
    """Migrate what an earlier version's demo left, since nobody could name its database."""
    import sqlite3

    from memory.stores.sql.engine import schema
    from memory.stores.sql.engine.upgrade import upgrade as run

    file = settings.sqlite_file
    if file is None or not file.is_file() or running_url(settings.data):
        return
    try:
        with contextlib.closing(sqlite3.connect(file)) as conn:
            row = conn.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        # The start says what is wrong with it.
        return
    if row is not None and row[0] < schema.REVISION:
        run(settings.database)


@db.command(short_help="Copy the database; the gateway may be running.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@config_option
def backup(file: Path, config: Path | None, as_json: bool) -> None:
    """Copy the current database to FILE, which must not exist yet. The gateway may keep running.

    \b
    Example:
      mnemogate db backup memory-of-today.db
    """
    from memory import StoreUnavailable
    from memory.stores.sql.transfer.backup import backup as run

    settings = with_database(config)
    if (path := settings.sqlite_file) is None:
        raise CommandFailed(
            f"{settings.database.partition('://')[0]} has its own tools for this, such as "
            "pg_dump. This command only copies SQLite databases."
        )
    try:
        size = run(path, file)
    except FileExistsError as e:
        raise CommandFailed(
            f"{file} exists already and is not overwritten. Choose another name."
        ) from e
    except OSError as e:
        raise CommandFailed(f"{file} cannot be written: {e.strerror}. Choose another place.") from e
    except StoreUnavailable as e:
        raise CommandFailed(f"{path}: {e}") from e
    secret = settings.data / "secret"
    print_result(
        f"{file}: {size} bytes. Keep a copy of {secret} with it: without that file no stored "
        "memory can be recognised",
        {"file": str(file), "bytes": size, "secret": str(secret)},
        as_json=as_json,
    )


@db.command(short_help="Reclaim the space of deleted data (VACUUM).")
@json_option
@config_option
def vacuum(config: Path | None, as_json: bool) -> None:
    """Rewrite the database, so that no deleted data is left in its files.

    Needs as much free disk space as the database uses. Run it when there is little traffic.

    \b
    Example:
      mnemogate db vacuum
    """
    from memory import StoreUnavailable
    from memory.stores.sql.engine.vacuum import vacuum as run

    settings = with_database(config)
    path = settings.sqlite_file
    before = _size(path)
    try:
        asyncio.run(run(settings.database))
    except StoreUnavailable as e:
        raise CommandFailed(f"{settings.database_shown}: {e}") from e
    database = settings.database_shown
    after = _size(path)
    if path:
        message = f"{path}: {before} bytes before, {after} after"
    else:
        message = f"{database} was rewritten"
    if path:
        sizes = {"bytes_before": before, "bytes_after": after}
    else:
        sizes = {}
    print_result(message, {"database": database, **sizes}, as_json=as_json)


def _size(path: Path | None) -> int:
    """Return the bytes of the database and its write-ahead log."""
    files = (path, path.with_name(f"{path.name}-wal")) if path else ()
    return sum(file.stat().st_size for file in files if file.exists())
