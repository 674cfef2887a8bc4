"""The layers that a program outside a conversation reads beside its user's own memory."""

from __future__ import annotations

from sqlalchemy import Connection

from memory.session.memory_caller import MemoryCaller
from memory.session.shared_changes import SharedChanges
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.rows import scopes, visible_blocks
from memory.stores.sql.rows.read_layers import NO_LAYERS, ReadLayers


def read_layers(conn: Connection, caller: MemoryCaller, changes: SharedChanges) -> ReadLayers:
    """Return the layers that a caller reads; who uses none costs no statement.

    changes: by which is known whether the tenant has layers, where one gateway alone writes them.
    """
    scope = caller.scope
    if sql_driver(conn).is_shared:
        _, _, layered = scopes.owner_and_changes(conn, scope)
    else:
        layered = scope.tenant in changes.layered
    if not (layered or scope.project):
        return NO_LAYERS
    layers = visible_blocks.read_layers(conn, scope, caller.general_blocks)
    return ReadLayers(scope, layers) if layers else NO_LAYERS
