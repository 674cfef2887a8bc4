"""Recall memory from outside: conversations, their messages, explain records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from memory.conversation.messages import Json
from memory.core.screen import MASK_BEGINNING, Screen
from memory.errors import AmbiguousName, NotFound
from memory.management.reading import read
from memory.management.users import find_scope
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.owners import erasure
from memory.stores.sql.rows import conversations as rows
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.conversations import FoundConversation
from memory.stores.sql.rows.management_context import ManagementActor
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.scopes import VisibleScopes
from memory.stores.sql.transfer import importer
from memory.stores.sql.transfer.transcripts import ImportedMessage

MessageRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConversationName:
    """A conversation's name, and its owner if several have the same name."""

    name: str
    user: str | None = None
    agent: str | None = None


async def list_conversations(
    memory: Memory, scope: Scope, before: int | None, limit: int
) -> list[FoundConversation]:
    """List a scope's conversations, newest first, before a row key. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[FoundConversation]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return rows.page(conn, scope_id, before, limit)

    return await read(memory, work)


async def read_titles(memory: Memory, scope: Scope, names: Sequence[str]) -> dict[str, str]:
    """Return how each of a scope's conversations began, by its name. Raises StoreUnavailable."""

    def work(conn: Connection) -> dict[str, str]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None or not names:
            return {}
        return rows.read_titles(conn, scope_id, names)

    return await read(memory, work)


async def import_conversation(
    memory: Memory, actor: ManagementActor, messages: Sequence[ImportedMessage], name: str | None
) -> FoundConversation:
    """Store a chat as a new conversation; its assistant messages count as ours.

    Raises Conflict for a name in use, ErasedMeanwhile, StoreUnavailable.
    """
    return await importer.import_conversation(memory.db, actor, messages, name)


async def list_messages(
    memory: Memory, scope: Scope, name: str, after: int, limit: int
) -> list[MessageRow]:
    """List the messages of a scope's conversation, oldest first, after a row key.

    Raises NotFound, StoreUnavailable.
    """

    def work(conn: Connection) -> list[MessageRow] | None:
        scope_id = scopes.find(conn, scope)
        conversation = None
        if scope_id is not None:
            conversation = rows.find_named(conn, scope_id, name)
        if conversation is None:
            return None
        return message_rows.page(conn, conversation.key, after, limit)

    message_page = await read(memory, work)
    if message_page is None:
        raise NotFound(f"This user has no conversation {name[:80]!r}.")
    return message_page


def read_message(row: MessageRow, screen: Screen) -> Json:
    """Return a listed message as it was given, without its secrets."""
    message = message_rows.parse_message(row["body"], row["role"], row["content"])
    # The body of a history that is kept here has them; its text says that some were left out.
    if MASK_BEGINNING in row["content"]:
        return screen.mask_message(message)
    return message


async def search_messages(memory: Memory, scope: Scope, query: SearchQuery) -> list[MessageRow]:
    """Search messages, best first; without words, the newest. Raises StoreUnavailable."""
    scope_id = await find_scope(memory, scope)
    if scope_id is None:
        return []
    return await memory.retrieval.messages(scope_id, query)


async def read_conversation(
    memory: Memory,
    reach: VisibleScopes,
    conversation_name: ConversationName,
    after: int,
    limit: int,
) -> tuple[FoundConversation, list[MessageRow]]:
    """Return a conversation with its messages, oldest first, after a row key.

    Raises NotFound, AmbiguousName, StoreUnavailable.
    """

    def work(conn: Connection) -> tuple[FoundConversation, list[MessageRow]]:
        conversation = _find(conn, reach, conversation_name)
        return conversation, message_rows.page(conn, conversation.key, after, limit)

    return await read(memory, work)


async def delete_conversation(
    memory: Memory, reach: VisibleScopes, conversation_name: ConversationName
) -> FoundConversation:
    """Delete a conversation and everything derived from it; return what it was.

    Raises NotFound, AmbiguousName, StoreUnavailable.
    """
    deleted_conversation = await erasure.delete_conversation(
        memory.db, lambda conn: _find(conn, reach, conversation_name), memory.db.application_tables
    )
    await asyncio.to_thread(memory.recovery_log.forget_conversation, deleted_conversation.key)
    return deleted_conversation


async def find_explain_record(memory: Memory, reach: VisibleScopes, ident: str) -> Json | None:
    """Return the explain record of one request, with its time and user.

    Raises StoreUnavailable.
    """
    return await read(memory, lambda conn: rows.find_explain_record(conn, reach, ident))


def _find(
    conn: Connection, reach: VisibleScopes, conversation_name: ConversationName
) -> FoundConversation:
    conversations = rows.find_visible(
        conn, reach, conversation_name.name, conversation_name.user, conversation_name.agent
    )
    if not conversations:
        raise NotFound(
            f"There is no conversation {conversation_name.name[:80]!r} that this key may see."
        )
    if len(conversations) > 1:
        raise AmbiguousName(f"several conversations are named {conversation_name.name[:80]!r}")
    return conversations[0]
