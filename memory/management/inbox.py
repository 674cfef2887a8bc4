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


async def put_message(memory: Memory, new_message: NewInboxMessage) -> InboxMessage:
    """Put a message into the inbox of an agent. Raises StoreUnavailable."""
    lock = owner_lock(new_message.to.tenant, new_message.to.owner)
    return await memory.db.write(lambda conn: rows.put(conn, new_message), lock=lock)


async def list_messages(
    memory: Memory, address: InboxAddress, after: tuple[float, str] | None, limit: int
) -> list[InboxMessage]:
    """List the messages of an inbox, newest first, behind a place. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_page(conn, address, after, limit))


async def take_back(memory: Memory, address: InboxAddress, ident: str) -> None:
    """Remove a message from an inbox. Raises NotFound, StoreUnavailable."""
    lock = owner_lock(address.tenant, address.owner)
    await memory.db.write(lambda conn: rows.take_back(conn, address, ident), lock=lock)
