"""`mnemogate db erase-again`: repeat in a restored database what was erased after its backup."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import (
    CommandFailed,
    config_option,
    json_option,
    print_result,
    with_database,
)

if TYPE_CHECKING:
    from gateway.config.settings import Settings


@click.command("erase-again", short_help="Repeat erasures after a restore.")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@config_option
def erase_again(log: Path, config: Path | None, as_json: bool) -> None:
    """Erase users again whom a restored backup brought back. LOG is the gateway's log.

    The log has a keyed hash of each erased user, not the name. Users who are erased already are
    skipped, so the command may be repeated.

    \b
    Example:
      mnemogate db erase-again gateway.log
    """
    from memory import StoreUnavailable

    settings = with_database(config)
    try:
        erased_count, logged_count = asyncio.run(_erase(settings, log))
    except StoreUnavailable as e:
        raise CommandFailed(f"{settings.database_shown}: {e}") from e
    message = (
        f"{logged_count} users are erased in {log}; {erased_count} of them were here, and are "
        "erased again"
    )
    print_result(message, {"logged": logged_count, "erased": erased_count}, as_json=as_json)


async def _erase(settings: Settings, log: Path) -> tuple[int, int]:
    """Return how many users were erased, and how many the log tells of."""
    from gateway.config.secret_file import server_secret
    from gateway.storage.owner_names import find_owners
    from gateway.storage.responses import ResponseTable
    from gateway.storage.usage import UsageTables
    from memory import Database
    from memory.stores.sql.owners import erasure, erasure_log

    with log.open(encoding="utf-8", errors="replace") as lines:
        logged_owners = erasure_log.parse_lines(lines)
    secret = server_secret(settings)
    db = Database(settings.database, secret=secret)
    await db.open()
    try:
        undone = set(await db.read(lambda conn: erasure_log.find_undone(conn, logged_owners)))
        back = await db.read(lambda conn: find_owners(conn, secret, undone))
        tables = (UsageTables(lambda tenant, user: None), ResponseTable(db))
        for owner in back:
            await erasure.erase(db, secret, owner, tables)
    finally:
        await db.close()
    return len(back), len(logged_owners)
