"""`mnemogate db ...`: the database's own upkeep."""
from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gateway.cli.options import Failed, config_option, settings_from, with_database
from gateway.cli.running import running


@click.group(short_help="Upgrade or clean the database.")
def db() -> None:
    """Upgrade or clean the database.

    \b
    Examples:
      mnemogate db upgrade
      mnemogate db vacuum
    """


@db.command(short_help="Bring the tables to this version.")
@config_option
def upgrade(config: Path | None) -> None:
    """Bring the tables to what this version of Mnemogate needs, with the gateway stopped. Make a copy of the database first.

    \b
    Example:
      mnemogate db upgrade --config gateway.toml
    """
    from memory.errors import StoreUnavailable
    from memory.stores.sql.upgrade import upgrade as run

    settings = settings_from(config)
    if url := running(settings.data):
        raise Failed(f"The gateway at {url} uses this database. Stop it first.")
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        revision = run(settings.database)
    except StoreUnavailable as e:
        raise Failed(f"{settings.database}: {e}") from e
    click.echo(f"{settings.database} is at version {revision}")


@db.command(short_help="Leave no erased byte in the files.")
@config_option
def vacuum(config: Path | None) -> None:
    """Rewrite the database, so that no erased byte is left in its files. Needs as much free space again, and a quiet moment.

    \b
    Example:
      mnemogate db vacuum
    """
    from memory.errors import StoreUnavailable
    from memory.stores.sql.vacuum import vacuum as run

    settings = with_database(config)
    path = settings.sqlite_file
    before = path.stat().st_size if path else 0
    try:
        asyncio.run(run(settings.database))
    except StoreUnavailable as e:
        raise Failed(f"{settings.database}: {e}") from e
    click.echo(f"{path}: {before} bytes before, {path.stat().st_size} after" if path else f"{settings.database} is rewritten")
