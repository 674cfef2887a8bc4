"""`mnemogate db copy`: move a memory that is kept in SQLite to Postgres."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.lockfile import running_url
from gateway.cli.options import (
    CommandFailed,
    config_option,
    json_option,
    print_result,
    with_database,
)

if TYPE_CHECKING:
    from gateway.config.settings import Settings

# Between two lines of progress.
REPORT_SECONDS = 1.0
POSTGRES = "postgresql+asyncpg://"


@click.command(short_help="Copy a SQLite memory to Postgres.")
@click.option(
    "--to",
    "target",
    required=True,
    envvar="MNEMOGATE_COPY_TO",
    metavar="URL",
    help="An empty Postgres database: postgresql+asyncpg://user:password@host/database.  [env: "
    "MNEMOGATE_COPY_TO]",
)
@json_option
@config_option
def copy(target: str, config: Path | None, as_json: bool) -> None:
    """Copy the memory from SQLite to an empty Postgres database, with the gateway stopped.

    Everything is copied, or nothing: if it ends early, run it again. The SQLite file stays as it
    is. The secret stays the same too: the command says how to set it.

    \b
    Example:
      mnemogate db copy --to postgresql+asyncpg://mnemogate:password@db.example.com/mnemogate
    """
    from gateway.errors import redact_url
    from memory import StoreUnavailable

    settings = with_database(config)
    source = _check(settings, target)
    try:
        rows = asyncio.run(_copy(settings, source, target, quiet=as_json))
    except StoreUnavailable as e:
        raise CommandFailed(f"{redact_url(target)}: {e}") from e
    except ImportError as e:
        raise CommandFailed(
            "asyncpg is missing: run pip install '.[postgres]' in the folder of Mnemogate's source"
        ) from e
    secret = ""
    if not settings.storage.secret.get_secret_value():
        secret = str(settings.data / "secret")
    set_ = "what it is now"
    if secret:
        set_ = f"the 64 digits in {secret}"
    message = (
        f"{sum(rows.values())} rows of {len(rows)} tables are in {redact_url(target)}, the search "
        f"index too. Set storage.database to that URL, storage.secret to {set_}, and start the "
        f"gateway. Keep {source} until you have seen that all is there."
    )
    result = {"database": redact_url(target), "rows": rows, "secret": secret}
    print_result(message, result, as_json=as_json)


def _check(settings: Settings, target: str) -> Path:
    """Return the file to copy. Raises CommandFailed if it cannot be copied to this URL."""
    if (source := settings.sqlite_file) is None:
        raise CommandFailed(
            f"{settings.database_shown} is no SQLite database. Between two Postgres servers use "
            "pg_dump and pg_restore."
        )
    if not target.startswith(POSTGRES):
        raise CommandFailed(
            f"--to begins with {target[:24]!r}: use {POSTGRES}user:password@host/db"
        )
    if url := running_url(settings.data):
        raise CommandFailed(f"The gateway at {url} uses this database. Stop it first.")
    return source


async def _copy(settings: Settings, source: Path, target: str, *, quiet: bool) -> dict[str, int]:
    from gateway.config.secret_file import server_secret
    from memory.stores.sql.engine.sqlite.fts import IndexLimit
    from memory.stores.sql.transfer.copy_to_postgres import CopyTarget, copy_to_postgres

    limit = IndexLimit(settings.memory.index_characters)
    where = CopyTarget(target, server_secret(settings), limit)
    reported_at = time.monotonic()

    def report(table: str, row_count: int, size: int) -> None:
        nonlocal reported_at
        if not quiet and time.monotonic() - reported_at >= REPORT_SECONDS:
            reported_at = time.monotonic()
            click.echo(f"{table}: {row_count} of {size}")

    return await copy_to_postgres(source, where, report)
