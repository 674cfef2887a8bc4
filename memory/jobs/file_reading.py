"""Reads files behind their upload.

A reading runs in a child (see `memory.formats.documents.reading`). What it says is stored piece by
piece, invisibly, and shown in one transaction at the end. A child that dies is tried once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.reading import ChildDied, FileReader, FileSource
from memory.formats.documents.unreadable import Unreadable
from memory.jobs.file_storing import FileStoring, Superseded
from memory.jobs.worker import Handler
from memory.stores.sql import files
from memory.stores.sql.database import Database
from memory.stores.sql.file_block import BlockDefaults
from memory.stores.sql.file_passages import UploadPlace
from memory.stores.sql.files import ReadResult
from memory.stores.sql.jobs import Effect, QueuedJob

log = logging.getLogger("mnemogate")
TRIES = 2
Limits = Callable[[], DocumentLimits]


def reading_handler(
    db: Database, reader: FileReader, limits: Limits, blocks: BlockDefaults
) -> Handler:
    """Return the job that reads one upload."""

    async def run(job: QueuedJob) -> Effect | None:
        upload = int(job.payload["upload"])
        row = await db.read(partial(files.find_upload, upload=upload))
        if row is None:
            return None
        place = UploadPlace(row.scope_id, upload, row.name, row.updated_at)
        await db.write(partial(files.note_reading, upload=upload), small=True, lock=row.scope_id)
        try:
            result = await _read(FileStoring(db, place), reader, limits())
        except Unreadable as e:
            return partial(files.note_failure, upload=upload, reason=str(e), blocks=blocks)
        except Superseded:
            return None
        return partial(files.show_upload, upload=upload, result=result, blocks=blocks)

    return run


async def _read(reading: FileStoring, reader: FileReader, limits: DocumentLimits) -> ReadResult:
    """Read a file, twice if the child dies. Raises Unreadable, Superseded."""
    for tries in range(1, TRIES + 1):
        await reading.begin()
        source = FileSource(reading.place.name, await reading.size(), reading.chunks())
        try:
            async with reader.open(source, limits) as frames:
                return await reading.store(frames)
        except ChildDied as e:
            log.warning("reading a file failed (attempt %d of %d): %s", tries, TRIES, e)
            reason = str(e)
    raise Unreadable(f"{reason}, {TRIES} times")
