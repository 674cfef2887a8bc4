"""Removes the uploads that no file shows any more."""

from __future__ import annotations

from functools import partial

from memory.jobs.worker import Handler, Worker
from memory.stores.sql.engine.batches import write_batches
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import file_removal
from memory.stores.sql.rows.file_uploads import CLEAN_JOB
from memory.stores.sql.rows.jobs import QueuedJob


def register_cleaning(worker: Worker, db: Database) -> None:
    """Register the job."""
    worker.register(CLEAN_JOB, cleaning_handler(db))


def cleaning_handler(db: Database) -> Handler:
    """Return the job that removes uploads that no file shows any more."""

    async def run(job: QueuedJob) -> None:
        for upload in job.payload["uploads"]:
            clean_file = partial(file_removal.clean_upload, upload=int(upload))
            await write_batches(db, clean_file, NOTHING)

    return run
