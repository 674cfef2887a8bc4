"""`mnemogate index ...`: rebuild the search index from the stored rows."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import CommandFailed, config_option, with_database

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from memory import Database
    from memory.jobs.reindex import ReindexProgress

NOTE = "index-rebuild"  # file in the data folder with the progress of a rebuild
PAUSE_SECONDS = 0.02  # shortest pause between two pages
REPORT_SECONDS = 1.0  # between two progress lines
STALLED = 30.0  # seconds without a new vector, after which the command stops waiting


@click.group(short_help="Rebuild the search index.")
def index() -> None:
    """Rebuild the search index from the stored messages and passages.

    \b
    Example:
      mnemogate index rebuild
    """


@index.command(short_help="Rebuild keywords, and vectors if configured.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Drop the keyword index first, if it is damaged; search finds little until the end.",
)
@config_option
def rebuild(config: Path | None, fresh: bool) -> None:
    """Rebuild the search index; the gateway may keep running.

    If interrupted, it resumes the next time. Missing vectors are made by the running gateway, and
    the command waits for them; if none runs, they are made when one starts.

    \b
    Example:
      mnemogate index rebuild
    """
    from memory import StoreUnavailable

    settings = with_database(config)
    try:
        asyncio.run(_rebuilt(settings, fresh))
    except StoreUnavailable as e:
        raise CommandFailed(f"{settings.database_shown}: {e}") from e


async def _rebuilt(settings: Settings, fresh: bool) -> None:
    from gateway.config.secret_file import server_secret
    from memory import Database
    from memory.jobs import reindex
    from memory.stores.sql.engine.sqlite import fts as rows

    note = settings.data / NOTE
    indexed = settings.memory.index_characters
    db = Database(settings.database, index_characters=indexed, secret=server_secret(settings))
    await db.open()
    try:
        mark = reindex.ReindexProgress() if fresh else _read_note(note)
        if fresh:
            await db.write(rows.recreate_indexes)
        await _keywords(db, mark, note)
        if settings.memory.embedder != "none":
            await _vectors(db, settings)
    finally:
        await db.close()


async def _keywords(db: Database, mark: ReindexProgress, note: Path) -> None:
    from memory.jobs import reindex

    sizes, done, told = (
        await db.read(reindex.sizes),
        dict.fromkeys(reindex.KINDS, 0),
        time.monotonic(),
    )
    if mark != reindex.ReindexProgress():
        click.echo(f"resuming in the {mark.kind} after {mark.after}")
    while mark.kind != "done":
        kind, begun = mark.kind, time.monotonic()
        mark, count = await db.write(partial(reindex.step, progress=mark))
        _note(note, mark)
        done[kind] += count
        if time.monotonic() - told >= REPORT_SECONDS:
            told = time.monotonic()
            click.echo(f"{kind}: {done[kind]} of {sizes[kind.rpartition(' ')[2]]}")
        # So that a running gateway can write in between.
        await asyncio.sleep(max(PAUSE_SECONDS, time.monotonic() - begun))
    click.echo(
        f"keywords: {done['messages']} messages and {done['passages']} passages are in the index"
    )


async def _vectors(db: Database, settings: Settings) -> None:
    """Wait for the running gateway to make missing vectors, and show the progress.

    Only the gateway has the embedder and the index.
    """
    from gateway.cli.lockfile import running_url
    from memory.jobs import reindex
    from memory.stores.sql.index import vectors

    model = settings.memory.embedder.partition(":")[2] or settings.memory.embedder
    scopes, wanted = await reindex.schedule_embedding(db), await db.read(vectors.count_wanted)
    seen, since = -1, time.monotonic()
    while True:
        made = await db.read(lambda conn: vectors.count_made(conn, model))
        left = await db.read(reindex.count_unembedded_scopes)
        if made != seen:
            seen, since = made, time.monotonic()
            click.echo(f"vectors: {made} of {wanted}")
        if not left.get("ready") and not left.get("running"):
            break
        if running_url(settings.data) is None:
            click.echo(
                f"vectors: {scopes} users are queued; the gateway will process them at its next "
                "start"
            )
            return
        if time.monotonic() - since > STALLED:
            click.echo(
                f"vectors: no progress for {STALLED:.0f} seconds; the gateway will retry in "
                "the background, and /memory/v1/jobs shows what failed"
            )
            return
        await asyncio.sleep(REPORT_SECONDS)
    if refused := await db.read(lambda conn: vectors.count_refused(conn, model)):
        click.echo(f"vectors: {model} refused {refused} texts, which only keyword search finds")
    if waiting := left.get("waiting"):
        click.echo(
            f"vectors: {waiting} users wait for their next request, which brings a credential"
        )


def _note(note: Path, mark: ReindexProgress) -> None:
    if mark.kind == "done":
        note.unlink(missing_ok=True)
    else:
        note.write_text(json.dumps({"kind": mark.kind, "after": mark.after}))


def _read_note(note: Path) -> ReindexProgress:
    from memory.jobs.reindex import ReindexProgress

    try:
        found = json.loads(note.read_text())
        return ReindexProgress(str(found["kind"]), int(found["after"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ReindexProgress()
