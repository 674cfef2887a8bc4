"""`memgate db ...`: the database's own upkeep, with the gateway stopped."""
from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import Failed, config_option, settings_from
from gateway.cli.running import running

if TYPE_CHECKING:
    from gateway.settings import Settings

FULL_TEXT = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%fts5%'"


@click.group(short_help="Upgrade or clean the database.")
def db() -> None:
    """Upgrade or clean the database.

    \b
    Examples:
      memgate db upgrade
      memgate db vacuum
    """


def _stopped(config: Path | None) -> Settings:
    settings = settings_from(config)
    if url := running(settings.data):
        raise Failed(f"The gateway at {url} uses this database. Stop it first.")
    return settings


@db.command(short_help="Bring the tables to this version.")
@config_option
def upgrade(config: Path | None) -> None:
    """Bring the tables to what this version of Memgate needs. Make a copy of the database first.

    \b
    Example:
      memgate db upgrade --config gateway.toml
    """
    settings = _stopped(config)
    from memory.stores.sql.upgrade import upgrade as run

    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    done = run(settings.database)
    if asyncio.iscoroutine(done):
        asyncio.run(done)
    click.echo(f"{settings.database} is up to date")


@db.command(short_help="Leave no erased byte in the files.")
@config_option
def vacuum(config: Path | None) -> None:
    """Rewrite the SQLite files, so that no erased byte is left in them. Needs as much free space again.

    \b
    Example:
      memgate db vacuum
    """
    settings = _stopped(config)
    path = sqlite_file(settings)
    if path is None:
        raise Failed("`db vacuum` is for SQLite. Postgres cleans itself: VACUUM FULL there, if you must.")
    if not path.exists():
        raise Failed(f"There is no database at {path} yet.")
    before = path.stat().st_size
    try:
        scrub(path)
    except sqlite3.Error as e:
        raise Failed(f"{path} could not be cleaned: {e}") from e
    click.echo(f"{path}: {before} bytes before, {path.stat().st_size} after")


def sqlite_file(settings: Settings) -> Path | None:
    """The file of a SQLite database; None for another kind."""
    _, found, path = settings.database.partition("sqlite+aiosqlite:///")
    return Path(path) if found else None


def scrub(path: Path) -> None:
    """Drops what the full-text indexes keep of deleted rows, rewrites the file, empties the log beside it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        for (name,) in connection.execute(FULL_TEXT).fetchall():
            quoted = name.replace('"', '""')
            connection.execute(f'INSERT INTO "{quoted}"("{quoted}") VALUES (\'optimize\')')  # noqa: S608 - a table's own name
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
