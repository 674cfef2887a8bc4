"""`memgate index ...`: what search reads, made anew from the record."""
from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import Failed, config_option, with_database

if TYPE_CHECKING:
    from gateway.settings import Settings
    from memory.jobs.reindex import Mark
    from memory.stores.sql.engine import Database

NOTE = "index-rebuild"  # how far a rebuild is, in the data folder, until it is done
SECONDS = 1.0  # between two lines of progress


@click.group(short_help="Make the search index anew.")
def index() -> None:
    """Make what search reads anew from the record.

    \b
    Example:
      memgate index rebuild
    """


@index.command(short_help="Keywords, and vectors where an embedder is configured.")
@click.option("--fresh", is_flag=True, help="Drop the keyword index first, for one that is damaged; search finds little until the end.")
@config_option
def rebuild(config: Path | None, fresh: bool) -> None:
    """Put every message and passage into the search index anew; the gateway may run meanwhile. Interrupted, it goes on from there
    the next time. Vectors are left to the gateway's background work.

    \b
    Example:
      memgate index rebuild
    """
    from memory.errors import StoreUnavailable

    settings = with_database(config)
    try:
        asyncio.run(_rebuilt(settings, fresh))
    except StoreUnavailable as e:
        raise Failed(f"{settings.database}: {e}") from e


async def _rebuilt(settings: Settings, fresh: bool) -> None:
    from memory.jobs import reindex
    from memory.stores.sql import index as rows
    from memory.stores.sql.engine import Database

    note = settings.data / NOTE
    db = Database(settings.database)
    await db.open()
    try:
        if not settings.sqlite_file:
            click.echo("keywords: kept in SQLite only")
        else:
            mark = reindex.Mark() if fresh else _noted(note)
            if fresh:
                await db.write(rows.emptied)
            await _keywords(db, mark, note)
        if settings.memory.embedder != "none":
            scopes = await db.write(reindex.embed_again)
            click.echo(f"vectors: {scopes} users' passages are queued; the gateway makes what is missing in the background, at its next start if it is stopped")
    finally:
        await db.close()


async def _keywords(db: Database, mark: Mark, note: Path) -> None:
    from memory.jobs import reindex

    sizes, done, told = await db.read(reindex.sizes), {"messages": 0, "passages": 0}, time.monotonic()
    if mark != reindex.Mark():
        click.echo(f"going on in the {mark.kind} after {mark.after}")
    while mark.kind != "done":
        kind = mark.kind
        mark, count = await db.write(lambda conn, m=mark: reindex.step(conn, m))  # type: ignore[misc]
        _note(note, mark)
        done[kind] += count
        if time.monotonic() - told >= SECONDS:
            told = time.monotonic()
            click.echo(f"{kind}: {done[kind]} of {sizes[kind]}")
    click.echo(f"keywords: {done['messages']} messages and {done['passages']} passages are in the index")


def _note(note: Path, mark: Mark) -> None:
    if mark.kind == "done":
        note.unlink(missing_ok=True)
    else:
        note.write_text(json.dumps({"kind": mark.kind, "after": mark.after}))


def _noted(note: Path) -> Mark:
    from memory.jobs.reindex import Mark

    try:
        found = json.loads(note.read_text())
        return Mark(str(found["kind"]), int(found["after"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Mark()
