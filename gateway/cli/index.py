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

# File in the data folder with the progress of a rebuild.
NOTE = "index-rebuild"
# Shortest pause between two pages.
PAUSE_SECONDS = 0.02
# Between two progress lines.
REPORT_SECONDS = 1.0
# Seconds without a new vector, after which the command stops waiting.
STALLED = 30.0


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
        if fresh:
            progress = reindex.ReindexProgress()
        else:
            progress = _read_note(note)
        if fresh:
            await db.write(rows.recreate_indexes)
        await _keywords(db, progress, note)
        if settings.memory.embedder != "none":
            await _vectors(db, settings)
    finally:
        await db.close()


async def _keywords(db: Database, progress: ReindexProgress, note: Path) -> None:
    from memory.jobs import reindex

    sizes = await db.read(reindex.sizes)
    indexed_counts = dict.fromkeys(reindex.KINDS, 0)
    reported_at = time.monotonic()
    if progress != reindex.ReindexProgress():
        click.echo(f"resuming in the {progress.kind} after {progress.after}")
    while progress.kind != "done":
        kind = progress.kind
        began_at = time.monotonic()
        progress, count = await db.write(partial(reindex.step, progress=progress))
        _note(note, progress)
        indexed_counts[kind] += count
        if time.monotonic() - reported_at >= REPORT_SECONDS:
            reported_at = time.monotonic()
            click.echo(f"{kind}: {indexed_counts[kind]} of {sizes[kind.rpartition(' ')[2]]}")
        # So that a running gateway can write in between.
        await asyncio.sleep(max(PAUSE_SECONDS, time.monotonic() - began_at))
    click.echo(
        f"keywords: {indexed_counts['messages']} messages and {indexed_counts['passages']} "
        "passages are in the index"
    )


async def _vectors(db: Database, settings: Settings) -> None:
    """Wait for the running gateway to make missing vectors, and show the progress.

    Only the gateway has the embedder and the index.
    """
    from gateway.cli.lockfile import running_url
    from memory.jobs import reindex
    from memory.stores.sql.index import vectors

    model = settings.memory.embedder.partition(":")[2] or settings.memory.embedder
    scopes, wanted_count = await reindex.schedule_embedding(db), await db.read(vectors.count_wanted)
    last_count, since = -1, time.monotonic()
    while True:
        made_count = await db.read(lambda conn: vectors.count_made(conn, model))
        scopes_left = await db.read(reindex.count_unembedded_scopes)
        if made_count != last_count:
            last_count, since = made_count, time.monotonic()
            click.echo(f"vectors: {made_count} of {wanted_count}")
        if not scopes_left.get("ready") and not scopes_left.get("running"):
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
    if refused_count := await db.read(lambda conn: vectors.count_refused(conn, model)):
        text = f"{refused_count} texts, which only keyword search finds"
        click.echo(f"vectors: {model} refused {text}")
    if waiting_count := scopes_left.get("waiting"):
        click.echo(
            f"vectors: {waiting_count} users wait for their next request, which brings a credential"
        )


def _note(note: Path, progress: ReindexProgress) -> None:
    if progress.kind == "done":
        note.unlink(missing_ok=True)
    else:
        note.write_text(json.dumps({"kind": progress.kind, "after": progress.after}))


def _read_note(note: Path) -> ReindexProgress:
    from memory.jobs.reindex import ReindexProgress

    try:
        saved_progress = json.loads(note.read_text())
        return ReindexProgress(str(saved_progress["kind"]), int(saved_progress["after"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ReindexProgress()
