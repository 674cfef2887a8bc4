"""A hand that reaches into a memory from outside a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from memory.blocks import Block
from memory.scope import Scope
from memory.stores.sql import owners
from memory.stores.sql.blocks import Shelf, Source


@dataclass(frozen=True, slots=True)
class Hand:
    """Whose memory, the operator's blocks in it, and who reaches in."""

    scope: Scope
    defaults: Mapping[str, Block]
    source: Source

    def shelf(self, conn: Connection) -> Shelf:
        """The blocks as they are, the operator's alone for a user who has nothing yet."""
        return Shelf(owners.find(conn, self.scope), self.defaults)


def marked(conn: Connection, scope: Scope) -> int:
    """The scope's row, made when absent, marked as edited from outside: every frozen core text is stale from now on."""
    scope_id = owners.ensure(conn, owners.as_found(conn, scope))
    owners.touch(conn, scope_id, outside=True)
    return scope_id
