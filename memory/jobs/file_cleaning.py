"""Removes the uploads that no file shows any more."""

from __future__ import annotations

from functools import partial

from memory.jobs.worker import Handler, Worker
from memory.stores.sql import file_removal
from memory.stores.sql.batches import write_batches
from memory.stores.sql.database import Database
from memory.stores.sql.file_uploads import CLEAN_JOB
from memory.stores.sql.jobs import QueuedJob
from memory.stores.sql.write_lock import NOTHING


def register_cleaning(worker: Worker, db: Database) -> None:
    """Register the job."""
    worker.register(CLEAN_JOB, cleaning_handler(db))


def cleaning_handler(db: Database) -> Handler:
    """Return the job that removes uploads that no file shows any more."""

    async def run(job: QueuedJob) -> None:
        for upload in job.payload["uploads"]:
            clean = partial(file_removal.clean_upload, upload=int(upload))
            await write_batches(db, clean, NOTHING)

    return run
