"""Adds recorded messages to the search index, after their turns."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import SQLAlchemyError

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import ScopeBacklog, SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import MESSAGES_INDEX, SearchDocument
from memory.stores.sql.engine.statements import execute, key_list
from memory.stores.sql.index.index_changes import DocumentWords, take_document
from memory.stores.sql.rows.messages import speaker, words_before

log = logging.getLogger("mnemogate")
m = t.messages.c
n = t.nodes.c


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, SearchDocument]]:
    """Return row keys and documents, in order, after a row key."""
    rows = conn.execute(select(t.messages).where(m.id > after).order_by(m.id).limit(limit))
    return [(r.id, _doc(conn, r)) for r in rows]


class MadeDocuments(NamedTuple):
    """What is indexed of messages, by row key. limit: of each, see `IndexLimit`."""

    words: Mapping[int, DocumentWords]
    limit: int


@cache
def _statement_of_keys(driver: SqlDriver) -> Any:
    return select(t.messages).where(driver.is_listed(m.id))


def make_documents(
    conn: Connection, keys: Sequence[int], max_characters: int
) -> MadeDocuments | None:
    """Return what the index will hold of messages; None if their texts are too long."""
    rows = execute(conn, _statement_of_keys(sql_driver(conn)), key_list(conn, keys))
    if sum(len(row.content) + len(row.body) for row in rows) > max_characters:
        return None
    limit = fts.index_limit(conn)
    words = {row.id: fts.document_words(MESSAGES_INDEX, _doc(conn, row), limit) for row in rows}
    return MadeDocuments(words, limit.characters)


class _SpeakerNames(msgspec.Struct):
    """The members of a message that the index needs besides its text."""

    name: Any = None


_named = msgspec.json.Decoder(_SpeakerNames).decode

# What compaction evicts at once stands one after the other, apart from the history.
EVICTED_BEFORE = text(
    "SELECT content FROM messages WHERE conversation = :conversation AND id < :key AND node = "
    ":node AND source = 'evicted' AND created_at = :at ORDER BY id DESC LIMIT 1"
)


def _doc(conn: Connection, row: Any) -> SearchDocument:
    if row.source == "evicted":
        where = {"conversation": row.conversation, "key": row.id, "node": row.node}
        before = execute(conn, EVICTED_BEFORE, {**where, "at": row.created_at}).scalar() or ""
    else:
        before = words_before(conn, row.conversation, row.node, row.id)
    name = None
    if row.body:
        name = _named(row.body).name
    return SearchDocument(
        row.scope_id,
        row.content,
        speaker({"name": name, "role": row.role, "content": row.content}),
        before,
        row.created_at,
    )


def index_pending(conn: Connection, max_messages: int, backlog: ScopeBacklog | None = None) -> int:
    """Index the next messages, at most `max_messages`; return how many.

    backlog: of one scope, and goes on behind them. Returns `max_messages` if more may wait. A
    message that cannot be indexed is skipped if another can; otherwise raises its error.
    """
    rows = sql_driver(conn).index.list_waiting(conn, max_messages, backlog)
    error_by_key = {
        row.id: error for row in rows if (error := _index_message(conn, row)) is not None
    }
    if rows and len(error_by_key) == len(rows):
        raise error_by_key[rows[0].id]
    for key, error in error_by_key.items():
        # Without its message, which may quote a user.
        log.warning(
            "message row %d cannot be put into the search index: %s", key, type(error).__name__
        )
    if backlog is not None and rows:
        backlog.before = (rows[-1].created_at, rows[-1].id)
        backlog.newest = max(backlog.newest, *(row.id for row in rows))
    scope_id = None if backlog is None else backlog.scope_id
    return sql_driver(conn).index.settle(conn, rows, max_messages, scope_id)


def _index_message(conn: Connection, row: Any) -> Exception | None:
    """Index one message; return why it cannot be, if so.

    Raises errors of the database, which are not the row's fault.
    """
    try:
        words = take_document(conn, row.id, fts.index_limit(conn).characters)
        if words is None:
            fts.put_document(conn, MESSAGES_INDEX, row.id, _doc(conn, row))
        else:
            fts.put_words(conn, MESSAGES_INDEX, row.id, row.scope_id, words)
    except (sqlite3.Error, SQLAlchemyError):
        raise
    except Exception as e:
        # The caller logs it, or raises it if all fail.
        return e
    return None


def waiting_size(conn: Connection, max_messages: int, backlog: ScopeBacklog | None = None) -> int:
    """Return the characters of the next `max_messages` messages to index."""
    return sql_driver(conn).index.waiting_size(conn, max_messages, backlog)


def index_waits(conn: Connection, scope_id: int, but: int | None = None, *, after: int = 0) -> bool:
    """Tell whether a message of the scope waits to be indexed.

    but: one of another conversation. after: a row key up to which all are known to be indexed.
    """
    return sql_driver(conn).index.has_waiting(conn, ScopeBacklog(scope_id, after), but)
