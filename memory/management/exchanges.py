"""The turns of a conversation from outside, with their tool calls."""

from __future__ import annotations

from sqlalchemy import Connection

from memory.management.reading import read
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.rows import conversations, scopes
from memory.stores.sql.turns import exchanges
from memory.stores.sql.turns.exchanges import Exchange

__all__ = ["Exchange", "list_exchanges"]


async def list_exchanges(
    memory: Memory, place_name: tuple[Scope, str], place: int | None, limit: int, *, newest: bool
) -> list[Exchange]:
    """List a conversation's turns behind a row key, newest or oldest first; [] for none of it.

    place_name: its scope and its name. place: None for the first. Raises StoreUnavailable.
    """
    scope, name = place_name

    def work(conn: Connection) -> list[Exchange]:
        scope_id = scopes.find(conn, scope)
        conversation = None
        if scope_id is not None:
            conversation = conversations.find_named(conn, scope_id, name)
        if conversation is None:
            return []
        return exchanges.page(conn, conversation.key, place, limit, newest=newest)

    return await read(memory, work)
