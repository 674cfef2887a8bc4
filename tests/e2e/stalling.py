"""A worker in a process of its own that stands still in the middle of one kind of chore, to be
killed there.

python -m tests.e2e.stalling <database> <kind> <writes or collections after which it stands still>;
it says so on standard output.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.storage.usage import UsageTables
from memory.jobs import maintenance
from memory.jobs.worker import Worker
from memory.retrieval.retriever import Retriever, SemanticSearch
from memory.stores.chroma import ChromaIndex
from memory.stores.sql.engine.database import Database


class Stalling:
    """What a chore works with: stands still once it has done so much."""

    def __init__(self, db, retrieval, after):
        self.db, self.retrieval, self.left = db, retrieval, after
        self.embed_scope = retrieval.embed_scope
        # As the gateway registers.
        self.application_tables = [UsageTables(lambda *_: None)]

    async def read(self, work, **how):
        return await self.db.read(work)

    async def write(self, work, **how):
        done = await self.db.write(work, **how)
        await self.one_more()
        return done

    async def forget(self, scope_id, kind, keys):
        await self.retrieval.forget(scope_id, kind, keys)
        await self.one_more()

    async def one_more(self):
        self.left -= 1
        if self.left == 0:
            print("standing still", flush=True)
            await asyncio.Event().wait()


async def main(path, kind, after):
    db = Database(f"sqlite+aiosqlite:///{path}")
    await db.open()
    stalling = Stalling(
        db,
        Retriever(
            db, SemanticSearch(None, ChromaIndex("chroma:embedded", Path(path).parent / "chroma"))
        ),
        after,
    )
    everything = Worker(db)
    maintenance.register(everything, stalling, maintenance.RetentionPolicy(7, 30), stalling)
    everything.register("fade", maintenance.fade_handler(stalling))
    worker = Worker(db)
    worker.register(kind, everything._handlers[kind])
    await worker.drain()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
