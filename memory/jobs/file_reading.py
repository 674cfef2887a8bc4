"""Reads files behind their upload.

A reading runs in a child (see `memory.formats.documents.reading`). What it says is stored piece by
piece, invisibly, and shown in one transaction at the end. A child that dies is tried once more.
"""

from __future__ import annotations

import logging
from functools import partial

from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.reading import ChildDied, FileReader, FileSource
from memory.formats.documents.unreadable import Unreadable
from memory.jobs.file_storing import FileStoring, Superseded
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import files
from memory.stores.sql.rows.file_block import BlockDefaults
from memory.stores.sql.rows.file_passages import UploadPlace
from memory.stores.sql.rows.files import READ_JOB, ReadResult
from memory.stores.sql.rows.jobs import Effect, QueuedJob

log = logging.getLogger("mnemogate")
TRIES = 2


class FileReading:
    """The job that reads one upload. blocks: the operator's."""

    kind = READ_JOB

    def __init__(
        self, db: Database, blocks: BlockDefaults, reader: FileReader | None = None
    ) -> None:
        self._db = db
        self._blocks = blocks
        self._reader = reader or FileReader()
        self.limits = DocumentLimits()

    async def run(self, job: QueuedJob) -> Effect | None:
        upload = int(job.payload["upload"])
        row = await self._db.read(partial(files.find_upload, upload=upload))
        if row is None:
            return None
        place = UploadPlace(row.scope_id, upload, row.name, row.updated_at)
        note = partial(files.note_reading, upload=upload)
        await self._db.write(note, small=True, lock=row.scope_id)
        try:
            result = await _read(FileStoring(self._db, place), self._reader, self.limits)
        except Unreadable as e:
            reason = str(e)
            return partial(files.note_failure, upload=upload, reason=reason, blocks=self._blocks)
        except Superseded:
            return None
        return partial(files.show_upload, upload=upload, result=result, blocks=self._blocks)


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
