"""The search index on SQLite: two FTS5 tables, whose documents have the keys of their rows.

Messages are indexed in the order of their keys: one mark says up to which all are indexed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
from sqlalchemy import DDL, Connection, event, func, select, text

from memory.ids import time_of
from memory.search.query import TermLookup, scope_mark
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import IndexPlace, ScopeBacklog, SharedWords
from memory.stores.sql.engine.statements import execute, put_row

# Most messages of an import that one check skips.
LOOK_AHEAD_ROWS = 512
# How far a clock may be set back without hiding new messages from search.
SET_BACK = 60.0
MARK = select(t.marks.c.upto).where(t.marks.c.name == "messages")
# Messages are put into the index in the order of their keys, so the key of one to be stored has to
# be greater than all, even with a clock set back.
NEWEST = select(
    select(func.max(t.messages.c.id)).scalar_subquery().label("stored"),
    MARK.scalar_subquery().label("indexed"),
)
# those indexed at once, or before a search
THERE = "EXISTS (SELECT 1 FROM messages_fts WHERE rowid = m.id)"
AHEAD = "FROM messages WHERE id > :mark ORDER BY id LIMIT :ahead"
# contains no input
_NEXT_KEYS = f"SELECT m.id FROM (SELECT id {AHEAD}) m WHERE NOT {THERE} LIMIT :most"
PASSED = text(f"SELECT count(*), max(id) FROM (SELECT id {AHEAD})")
# In the order of their index, each from where the last ended: to look at all that wait, batch after
# batch, held the event loop for 60 ms where 36,000 did.
_NEXT_KEYS_HERE = (
    "SELECT m.id FROM messages m WHERE m.scope_id = :scope AND m.created_at >= :since AND "
    f"(m.created_at, m.id) < (:until, :before) AND m.id > :mark AND NOT {THERE} "
    "ORDER BY m.created_at DESC, m.id DESC LIMIT :most"
)
_OF_KEYS = "FROM messages WHERE id IN ({})"
NEXT = text(f"SELECT * {_OF_KEYS.format(_NEXT_KEYS)} ORDER BY id")
NEXT_HERE = text(f"SELECT * {_OF_KEYS.format(_NEXT_KEYS_HERE)} ORDER BY created_at DESC, id DESC")
_SIZE = "SELECT coalesce(sum(length(content) + length(body)), 0) "
SIZE = text(_SIZE + _OF_KEYS.format(_NEXT_KEYS))
SIZE_HERE = text(_SIZE + _OF_KEYS.format(_NEXT_KEYS_HERE))
WAITS = (
    "SELECT 1 FROM messages m WHERE m.scope_id = ? AND m.created_at >= ? AND m.id > ? AND "
    f"m.conversation != ? AND NOT {THERE} LIMIT 1"
)
# Columns: scope, and with the scope before each word (memory.search.indexed): body, speaker,
# previous message, date.
FTS_SQL = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING fts5(scope, body, speaker, prev, day, "
    "tokenize='porter unicode61')"
)
for _name in t.FTS:
    _create = DDL(FTS_SQL.format(_name))  # type: ignore[no-untyped-call]
    event.listen(t.metadata, "after_create", _create.execute_if(dialect="sqlite"))
# As `schema.FTS`.
INDEXED = (t.messages, t.passages, t.file_tables.file_passages)
_decode_keys = msgspec.json.Decoder(list[int]).decode
PUT = "INSERT OR REPLACE INTO {} (rowid, scope, body, speaker, prev, day) VALUES (?, ?, ?, ?, ?, ?)"


class SqliteIndex:
    """What `SearchIndex` says, of a file."""

    newest: Sequence[Any] = tuple(NEWEST.selected_columns)

    def put_document(
        self, conn: Connection, table: str, place: tuple[int, int], columns: Mapping[str, str]
    ) -> None:
        key, scope_id = place
        prefix = scope_mark(scope_id)[:-1]
        _raw(conn).execute(PUT.format(table), (key, prefix, *columns.values()))

    def drop(self, conn: Connection, table: str, keys: Sequence[int]) -> None:
        rows = [(key,) for key in keys]
        # a constant name
        _raw(conn).executemany(f"DELETE FROM {table} WHERE rowid = ?", rows)

    def postings(
        self, conn: Connection, place: IndexPlace, lookups: Sequence[TermLookup], max_rows: int
    ) -> list[list[int]]:
        table = place.table
        between = f"AND rowid BETWEEN {place.first} AND {place.last} " if place.is_bounded else ""
        # The newest ones; where frequent words do not count, any order tells the same, for half.
        order = "" if place.drops_frequent else "ORDER BY rowid DESC "
        listing = "group_concat(rowid)"
        if place.drops_frequent:
            listing = f"CASE WHEN count(*) < {max_rows} THEN {listing} END"
        # One text for each lookup: a row at a time would be an object each.
        query = (
            f"SELECT %d, {listing} FROM (SELECT rowid FROM {table} WHERE {table} MATCH ? {between}"
            f"{order}LIMIT {max_rows})"
        )
        sql = " UNION ALL ".join(query % i for i in range(len(lookups)))
        keys: list[list[int]] = [[] for _ in lookups]
        for i, row_keys in _raw(conn).execute(sql, tuple(x.expression for x in lookups)):
            if row_keys:
                keys[i] = _decode_keys(f"[{row_keys}]")
        return keys

    def list_sharing_words(self, conn: Connection, scope_id: int, shared: SharedWords) -> list[int]:
        raw_connection = _raw(conn)
        prefix = scope_mark(scope_id)
        terms = [f'"{prefix}{word}"' for word in shared.pairs]
        pairs = " OR ".join(f"({a} AND {b})" for a, b in combinations(terms, 2)) or terms[0]
        every_word = " AND ".join(f'"{prefix}{word}"' for word in shared.every)
        oldest_row = raw_connection.execute(
            "SELECT id FROM passages WHERE scope_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?",
            (scope_id, shared.newest),
        ).fetchone()
        look = (
            "SELECT * FROM (SELECT rowid FROM passages_fts WHERE passages_fts MATCH ? AND rowid > "
            f"? ORDER BY rowid DESC LIMIT {shared.most})"
        )
        recent_query = (f"body : ({pairs})", oldest_row[0] if oldest_row else 0)
        values = (*recent_query, f"body : ({every_word})", 0)
        return [key for (key,) in raw_connection.execute(f"{look} UNION {look}", values)]

    def list_speakers(
        self, conn: Connection, place: tuple[str, int], words: Sequence[str]
    ) -> list[str]:
        table = place[0]
        prefix = scope_mark(place[1])
        # a constant name
        query = f"SELECT %d WHERE EXISTS (SELECT 1 FROM {table} WHERE {table} MATCH ?)"
        sql = " UNION ALL ".join(query % i for i in range(len(words)))
        values = tuple(f'speaker : "{prefix}{word}"' for word in words)
        return [words[i] for (i,) in _raw(conn).execute(sql, values)]

    def count_rows(self, conn: Connection, rows: str, scope_id: int, max_rows: int) -> int:
        (size,) = (
            _raw(conn)
            .execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE scope_id = ? LIMIT {max_rows})",
                (scope_id,),
            )
            .fetchone()
        )
        return int(size)

    def is_outdated(self, conn: Connection) -> bool:
        for table, rows in zip(t.FTS, INDEXED, strict=True):
            row = conn.exec_driver_sql(
                f"SELECT r.scope_id, f.day FROM {table} f JOIN {rows.name} r ON r.id = f.rowid "
                "ORDER BY f.rowid LIMIT 1"
            ).first()
            if row is not None and not str(row.day).startswith(scope_mark(row.scope_id)):
                return True
        return False

    def empty(self, conn: Connection) -> None:
        for table in t.FTS:
            conn.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
            conn.exec_driver_sql(FTS_SQL.format(table))

    def list_beside_rows(
        self, conn: Connection, tables: tuple[str, str], after: int, limit: int
    ) -> list[tuple[int, int | None]]:
        table, rows = tables
        look = (
            f"SELECT f.rowid, r.id FROM (SELECT rowid FROM {table} WHERE rowid > ? ORDER BY rowid "
            f"LIMIT ?) f LEFT JOIN {rows} r ON r.id = f.rowid"
        )
        return sorted((key, row) for key, row in _raw(conn).execute(look, (after, limit)))

    def newest_key(self, conn: Connection, conversation: int) -> int:
        newest_keys = self.read_newest(conn)
        return max(newest_keys.stored or 0, newest_keys.indexed or 0)

    def add_waiting(self, conn: Connection, scope_id: int, keys: Sequence[int]) -> None:
        """Do nothing: what is behind the mark waits."""

    def list_waiting(
        self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None
    ) -> Sequence[Any]:
        statement = NEXT if backlog is None else NEXT_HERE
        return conn.execute(statement, _values_of_next(conn, max_rows, backlog)).all()

    def waiting_size(self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None) -> int:
        statement = SIZE if backlog is None else SIZE_HERE
        values = _values_of_next(conn, max_rows, backlog)
        return int(conn.execute(statement, values).scalar_one())

    def settle(
        self, conn: Connection, rows: Sequence[Any], max_rows: int, scope_id: int | None
    ) -> int:
        """Move the mark. What was indexed of one scope stays behind it, and is passed over."""
        settled_count = passed_count = len(rows)
        if scope_id is not None:
            return settled_count
        if settled_count == max_rows:
            upto = rows[-1].id
        else:
            values = {"mark": _mark(conn), "ahead": LOOK_AHEAD_ROWS}
            passed_count, upto = conn.execute(PASSED, values).one()
        if upto is not None:
            put_row(conn, t.marks, ("name",), name="messages", upto=upto)
        if passed_count == LOOK_AHEAD_ROWS:
            return max_rows
        return settled_count

    def has_waiting(self, conn: Connection, backlog: ScopeBacklog, but: int | None) -> bool:
        indexed_up_to = _mark(conn)
        since = time_of(indexed_up_to) - SET_BACK
        values = (backlog.scope_id, since, max(indexed_up_to, backlog.after), but or 0)
        return _raw(conn).execute(WAITS, values).fetchone() is not None

    def note_indexed(self, conn: Connection, key: int, before: Any) -> None:
        """Move the mark if nothing else is pending, so that a search need not scan an import."""
        indexed = before.indexed or 0
        if (before.stored or 0) <= indexed:
            put_row(conn, t.marks, ("name",), name="messages", upto=max(key, indexed))

    def read_newest(self, conn: Connection) -> Any:
        return execute(conn, NEWEST, {}).one()


def _raw(conn: Connection) -> Any:
    """Return Python's connection under SQLAlchemy's, with the same transaction."""
    return conn.connection.dbapi_connection


def _values_of_next(
    conn: Connection, max_rows: int, backlog: ScopeBacklog | None
) -> dict[str, Any]:
    if backlog is None:
        return {"mark": _mark(conn), "most": max_rows, "ahead": LOOK_AHEAD_ROWS}
    indexed_up_to = _mark(conn)
    return {
        "mark": max(indexed_up_to, backlog.after),
        "most": max_rows,
        "scope": backlog.scope_id,
        "since": time_of(indexed_up_to) - SET_BACK,
        "until": backlog.before[0],
        "before": backlog.before[1],
    }


def _mark(conn: Connection) -> int:
    return int(execute(conn, MARK, {}).scalar() or 0)
