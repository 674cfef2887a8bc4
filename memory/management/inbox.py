"""Messages that wait for an agent, from outside: put, listed, taken back."""

from __future__ import annotations

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import agent_inbox as rows
from memory.stores.sql.rows.agent_inbox import InboxAddress, InboxMessage, NewInboxMessage

__all__ = [
    "InboxAddress",
    "InboxMessage",
    "NewInboxMessage",
    "list_messages",
    "put_message",
    "take_back",
]


async def put_message(memory: Memory, new: NewInboxMessage) -> InboxMessage:
    """Put a message into the inbox of an agent. Raises StoreUnavailable."""
    lock = owner_lock(new.to.tenant, new.to.owner)
    return await memory.db.write(lambda conn: rows.put(conn, new), lock=lock)


async def list_messages(
    memory: Memory, to: InboxAddress, after: tuple[float, str] | None, limit: int
) -> list[InboxMessage]:
    """List the messages of an inbox, newest first, behind a place. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_page(conn, to, after, limit))


async def take_back(memory: Memory, to: InboxAddress, ident: str) -> None:
    """Remove a message from an inbox. Raises NotFound, StoreUnavailable."""
    lock = owner_lock(to.tenant, to.owner)
    await memory.db.write(lambda conn: rows.take_back(conn, to, ident), lock=lock)
