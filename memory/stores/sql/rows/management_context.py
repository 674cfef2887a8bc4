"""Who edits a memory from outside a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.scope import Scope
from memory.stores.sql.engine.write_lock import WriteLock, owner_lock
from memory.stores.sql.rows import scopes, shared_blocks
from memory.stores.sql.rows.blocks import BlockSet, EditSource


@dataclass(frozen=True, slots=True)
class ManagementActor:
    """Whose memory, the operator's blocks in it, and who makes the edit."""

    scope: Scope
    defaults: Mapping[str, CoreBlock]
    source: EditSource

    @property
    def lock(self) -> WriteLock:
        """What their writes keep others from."""
        return owner_lock(self.scope.tenant, self.scope.user)

    def block_set(self, conn: Connection) -> BlockSet:
        """Return the current blocks; only the operator's for a user without rows."""
        return BlockSet(scopes.find(conn, self.scope), self.defaults)


def touch_scope(conn: Connection, scope: Scope) -> int:
    """Return the scope's row, created if missing, and mark it as edited from outside.

    Every frozen core text is outdated from now on.
    """
    scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
    scopes.touch(conn, scope_id, outside=True)
    if scope.is_layer:
        shared_blocks.raise_changes(conn, scope.tenant, layered=True)
    return scope_id
