"""Takes a team or a project away, with the passages that it held."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, delete

from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import BatchedWork
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.owners import erasure
from memory.stores.sql.owners.row_removal import RowsToRemove
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import enqueue


async def remove_layer(
    db: BatchedWork, layer: Scope, remove: Callable[[Connection], dict[str, int]]
) -> dict[str, int]:
    """Remove a layer and all that it holds; return the counts.

    remove: takes its own rows away, in the transaction that takes its memory away. Raises what that
    raises, and StoreUnavailable; a repetition continues.
    """
    job = erasure.removal_job()
    counts: dict[str, int] = {}

    def begin(conn: Connection) -> list[int]:
        counts.update(remove(conn))
        scope_id = scopes.find(conn, layer)
        if scope_id is None:
            return []
        scopes.void(conn, layer.owner)
        conn.execute(delete(t.scopes).where(t.scopes.c.id == scope_id))
        conn.execute(delete(t.jobs).where(t.jobs.c.scope_id == scope_id))
        job.payload["scopes"] = [scope_id]
        enqueue(conn, job)
        return [scope_id]

    rows = await db.write(begin, lock=owner_lock(layer.tenant, layer.user))
    removed_rows = await erasure.wipe_rows(db, [RowsToRemove(row) for row in rows], job)
    return {**counts, "passages": removed_rows["passages"]}
