"""A user's memory under another name. Imported where it is needed: no gateway does this."""

from __future__ import annotations

from functools import partial

from memory.stores.sql import rename_owner
from memory.stores.sql.database import Database
from memory.stores.sql.rename_owner import OwnerRename


async def rename_user(db: Database, move: OwnerRename) -> None:
    """Give a user's memory another name; a gateway may run on the database meanwhile.

    Raises NotFound, Conflict where the target has a memory, StoreUnavailable: nothing has moved
    then, and it can be begun again.
    """
    seen: dict[int, int] = {}
    for scope_id, agent in await db.read(lambda conn: rename_owner.begin(conn, move)):
        at: int | None = 0
        key = move.key(agent)
        while at is not None:
            seen[scope_id] = at
            at = await db.write(partial(rename_owner.page, scope_id=scope_id, key=key, behind=at))
    await db.write(lambda conn: rename_owner.finish(conn, move, seen, db.application_tables))
