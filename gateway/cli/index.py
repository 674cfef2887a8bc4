"""`mnemogate index ...`: what search reads, made anew from the record."""

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
REST = 0.02  # seconds between two pieces, at least
SECONDS = 1.0  # between two lines of progress
STALLED = 30.0  # seconds without a vector after which nobody waits for more


@click.group(short_help="Make the search index anew.")
def index() -> None:
    """Make what search reads anew from the record.

    \b
    Example:
      mnemogate index rebuild
    """


@index.command(short_help="Keywords, and vectors where an embedder is configured.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Drop the keyword index first, for one that is damaged; search finds little until the end.",
)
@config_option
def rebuild(config: Path | None, fresh: bool) -> None:
    """Put every message and passage into the search index anew; the gateway may run meanwhile. Interrupted, it goes on from there
    the next time. Missing vectors are made by the gateway that runs, and this waits for them; if none runs, by the next one that does.

    \b
    Example:
      mnemogate index rebuild
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
            await _vectors(db, settings)
    finally:
        await db.close()


async def _keywords(db: Database, mark: Mark, note: Path) -> None:
    from memory.jobs import reindex

    sizes, done, told = (
        await db.read(reindex.sizes),
        dict.fromkeys(reindex.KINDS, 0),
        time.monotonic(),
    )
    if mark != reindex.Mark():
        click.echo(f"going on in the {mark.kind} after {mark.after}")
    while mark.kind != "done":
        kind, begun = mark.kind, time.monotonic()
        mark, count = await db.write(lambda conn, m=mark: reindex.step(conn, m))  # type: ignore[misc]
        _note(note, mark)
        done[kind] += count
        if time.monotonic() - told >= SECONDS:
            told = time.monotonic()
            click.echo(f"{kind}: {done[kind]} of {sizes[kind.rpartition(' ')[2]]}")
        await asyncio.sleep(
            max(REST, time.monotonic() - begun)
        )  # else a gateway that runs would hardly find a moment to write
    click.echo(
        f"keywords: {done['messages']} messages and {done['passages']} passages are in the index"
    )


async def _vectors(db: Database, settings: Settings) -> None:
    """Has the running gateway make what is missing, and tells how far it is: it alone holds the embedder and the index."""
    from gateway.cli.running import running
    from memory.jobs import reindex
    from memory.stores.sql import vectors

    model = settings.memory.embedder.partition(":")[2] or settings.memory.embedder
    scopes, wanted = await reindex.embed_again(db), await db.read(vectors.wanted)
    seen, since = -1, time.monotonic()
    while True:
        made, left = (
            await db.read(lambda conn: vectors.made(conn, model)),
            await db.read(reindex.embedding),
        )
        if made != seen:
            seen, since = made, time.monotonic()
            click.echo(f"vectors: {made} of {wanted}")
        if not left.get("ready") and not left.get("running"):
            break
        if running(settings.data) is None:
            click.echo(
                f"vectors: {scopes} users are queued; the gateway looks after them at its next start"
            )
            return
        if time.monotonic() - since > STALLED:
            click.echo(
                f"vectors: none were made for {STALLED:.0f} seconds; the gateway tries again in the background, and /memory/v1/jobs tells what failed"
            )
            return
        await asyncio.sleep(SECONDS)
    if refused := await db.read(lambda conn: vectors.refused(conn, model)):
        click.echo(f"vectors: {model} refused {refused} of the texts, which words alone find")
    if waiting := left.get("waiting"):
        click.echo(
            f"vectors: {waiting} users wait for a request of theirs, which brings the credential"
        )


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
