"""A user's memory under another name. Imported where it is needed: few gateways ever do this."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from memory.errors import Conflict
from memory.service import Memory
from memory.stores.sql.engine.database import Database
from memory.stores.sql.owners import rename_owner
from memory.stores.sql.owners.rename_owner import OwnerRename


def _ignore(turns: int) -> None:
    """Show nothing."""


async def rename_user(
    db: Database, move: OwnerRename, on_progress: Callable[[int], None] = _ignore
) -> None:
    """Give a user's memory another name; a gateway may run on the database meanwhile.

    on_progress: called with the most turns that are prepared so far. Raises NotFound, Conflict
    where the target has a memory, StoreUnavailable: nothing has moved then, and it can be begun
    again.
    """
    moved_rows: dict[int, int] = {}
    pages = 0
    for scope_id, agent in await db.read(lambda conn: rename_owner.begin(conn, move)):
        next_scope: int | None = 0
        key = move.key(agent)
        while next_scope is not None:
            moved_rows[scope_id] = next_scope
            next_scope = await db.write(
                partial(rename_owner.page, scope_id=scope_id, key=key, after_node=next_scope)
            )
            pages += 1
            on_progress(pages * rename_owner.PAGE)
    await db.write(lambda conn: rename_owner.finish(conn, move, moved_rows, db.application_tables))


async def rename_live_user(
    memory: Memory, move: OwnerRename, on_progress: Callable[[int], None] = _ignore
) -> None:
    """Give a user's memory another name, in the gateway that serves it.

    Raises Conflict while turns wait in the recovery log, and what `rename_user` raises.
    """
    if not memory.recovery_log.is_empty:
        raise Conflict("turns wait in the recovery log; move the memory once they are stored")
    await rename_user(memory.db, move, on_progress)
    memory.policies.forget()
    for tenant, _ in (move.source, move.target):
        memory.shared.outdate(tenant)
