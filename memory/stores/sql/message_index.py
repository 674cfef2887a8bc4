"""Adds recorded messages to the search index, after their turns."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import SQLAlchemyError

from memory.ids import time_of
from memory.stores.sql import fts, message_queue
from memory.stores.sql import schema as t
from memory.stores.sql.fts import MESSAGES_INDEX, SearchDocument
from memory.stores.sql.index_changes import DocumentWords, take_document
from memory.stores.sql.messages import speaker, words_before
from memory.stores.sql.statements import driver, execute, is_listed, key_list, put_row

log = logging.getLogger("mnemogate")
m, n = t.messages.c, t.nodes.c


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, SearchDocument]]:
    """Return row keys and documents, in order, after a row key."""
    rows = conn.execute(select(t.messages).where(m.id > after).order_by(m.id).limit(limit))
    return [(r.id, _doc(conn, r)) for r in rows]


class MadeDocuments(NamedTuple):
    """What is indexed of messages, by row key. limit: of each, see `IndexLimit`."""

    words: Mapping[int, DocumentWords]
    limit: int


LISTED = select(t.messages).where(is_listed(m.id, lite=True))


def make_documents(conn: Connection, keys: Sequence[int], most: int) -> MadeDocuments | None:
    """Return what the index will hold of messages; None if their texts are longer than `most`."""
    rows = execute(conn, LISTED, key_list(conn, keys))
    if sum(len(row.content) + len(row.body) for row in rows) > most:
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
    name = _named(row.body).name if row.body else None
    return SearchDocument(
        row.scope_id,
        row.content,
        speaker({"name": name, "role": row.role, "content": row.content}),
        before,
        row.created_at,
    )


MARK = select(t.marks.c.upto).where(t.marks.c.name == "messages")


# those indexed at once, or before a search
THERE = "EXISTS (SELECT 1 FROM messages_fts WHERE rowid = m.id)"


AHEAD = "FROM messages WHERE id > :mark ORDER BY id LIMIT :ahead"


# contains no input
NEXT = text(f"SELECT * FROM (SELECT * {AHEAD}) m WHERE NOT {THERE} LIMIT :most")


PASSED = text(f"SELECT count(*), max(id) FROM (SELECT id {AHEAD})")


NEXT_HERE = text(
    "SELECT m.* FROM messages m WHERE m.scope_id = :scope AND m.created_at >= :since AND m.id "
    f"> :mark AND NOT {THERE} ORDER BY m.id DESC LIMIT :most"
)


WAITS = (
    "SELECT 1 FROM messages m WHERE m.scope_id = ? AND m.created_at >= ? AND m.id > ? AND "
    f"m.conversation != ? AND NOT {THERE} LIMIT 1"
)


LOOK_AHEAD_ROWS = 512  # most messages of an import that one check skips


# how far a clock may be set back without hiding new messages from search
SET_BACK = 60.0


def index_pending(conn: Connection, most: int, scope_id: int | None = None) -> int:
    """Index the next messages, at most `most`; return how many.

    scope_id: of one scope, newest first. Returns `most` if more may wait. A message that cannot be
    indexed is skipped if another can; otherwise raises its error.
    """
    rows = _next_unindexed(conn, most, scope_id, to_index=True)
    failed = {row.id: e for row in rows if (e := _index_message(conn, row)) is not None}
    if rows and len(failed) == len(rows):
        raise failed[rows[0].id]
    for key, e in failed.items():
        log.warning(
            "message row %d cannot be put into the search index: %s", key, type(e).__name__
        )  # without its message, which may quote a user
    done = len(rows)
    if driver(conn) is None:
        message_queue.done(conn, [row.id for row in rows])
    elif scope_id is None:
        passed, upto = (
            (done, rows[-1].id)
            if done == most
            else conn.execute(PASSED, {"mark": _mark(conn), "ahead": LOOK_AHEAD_ROWS}).one()
        )
        if upto is not None:
            put_row(conn, t.marks, ("name",), name="messages", upto=upto)
        done = most if passed == LOOK_AHEAD_ROWS else done
    return done


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
        return e  # the caller logs it, or raises it if all fail
    return None


def waiting_size(conn: Connection, most: int, scope_id: int | None = None) -> int:
    """Return the characters of the next `most` messages to index."""
    return sum(len(row.content) + len(row.body) for row in _next_unindexed(conn, most, scope_id))


def index_waits(conn: Connection, scope_id: int, but: int | None = None) -> bool:
    """Tell whether a message of the scope waits to be indexed. but: one of another conversation."""
    if (raw := driver(conn)) is None:
        return message_queue.waits(conn, scope_id, but)
    mark = _mark(conn)
    return (
        raw.execute(WAITS, (scope_id, time_of(mark) - SET_BACK, mark, but or 0)).fetchone()
        is not None
    )


def _next_unindexed(
    conn: Connection, most: int, scope_id: int | None = None, *, to_index: bool = False
) -> Sequence[Any]:
    if driver(conn) is None:
        return message_queue.take(conn, most, scope_id, to_index=to_index)
    if scope_id is None:
        return conn.execute(
            NEXT, {"mark": _mark(conn), "ahead": LOOK_AHEAD_ROWS, "most": most}
        ).all()
    mark = _mark(conn)
    return conn.execute(
        NEXT_HERE,
        {"scope": scope_id, "since": time_of(mark) - SET_BACK, "mark": mark, "most": most},
    ).all()


def _mark(conn: Connection) -> int:
    return int(execute(conn, MARK, {}).scalar() or 0)
