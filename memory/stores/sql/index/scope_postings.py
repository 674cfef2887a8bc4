"""Reads the rows and the words of one scope from SQLite's index, for `memory.search.postings`.

Each reading is one row of text, put together by SQLite: a row at a time would ask for Python's lock
as often, and wait for the event loop each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import Connection

from memory.search.postings import MOST_ROWS, PostedRow, PostedRows, ScopePostings, Stale
from memory.search.query import scope_mark
from memory.stores.sql.engine.sqlite.fts import MESSAGES_INDEX
from memory.stores.sql.engine.statements import driver

# A time in whole seconds and 2^-52 seconds, which is all of it: a number as text is not.
FRACTION = 1 << 52
_TIME = (
    "CAST({0} AS INTEGER) AS seconds, "
    f"CAST(({{0}} - CAST({{0}} AS INTEGER)) * {FRACTION} AS INTEGER)"
)
# Rows as their places in `PostedRow`; those over the limit tell that there are too many.
MESSAGES = (
    "SELECT json_group_array(json_array(id, conversation, seconds, fraction, said, shown)) FROM "
    f"(SELECT m.id, m.conversation, {_TIME.format('m.created_at')} AS fraction, "
    "m.role IN ('user', 'assistant') AND m.content != '' AS said, "
    "1 AS shown FROM messages m WHERE "
    f"m.scope_id = ? ORDER BY m.id LIMIT {MOST_ROWS + 1})"
)
TASKS = "SELECT json_group_array(id) FROM conversations WHERE scope_id = ? AND task"
PASSAGES = (
    "SELECT json_group_array(json_array(id, node, seconds, fraction, 0, shown)) FROM "
    f"(SELECT p.id, p.node, {_TIME.format('p.created_at')} AS fraction, p.deleted_at IS NULL AS "
    f"shown FROM passages p WHERE p.scope_id = ? ORDER BY p.id LIMIT {MOST_ROWS + 1})"
)
WORDS = (
    "SELECT group_concat(term || ' ' || places, char(10)) FROM (SELECT substr(term, ?) AS term, "
    "group_concat(doc || substr(col, 1, 1)) AS places FROM temp.{0}_words WHERE term >= ? AND "
    "term < ? GROUP BY term)"
)
COUNT = (
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM messages WHERE scope_id = ? LIMIT ?)) + (SELECT "
    "count(*) FROM (SELECT 1 FROM passages WHERE scope_id = ? LIMIT ?))"
)
# What the index itself has of each word, and no text of a user.
LISTED = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.{0}_words USING fts5vocab(main, {0}, instance)"
Listed = list[tuple[int, int, int, int, int, int]]
_decode = msgspec.json.Decoder(Listed).decode


def load_few(
    conn: Connection, tables: Sequence[str], scope_id: int, max_rows: int
) -> list[ScopePostings | None] | None:
    """Return what `load` does for each table; None if the scope has more than so many rows."""
    if (raw_connection := driver(conn)) is None:
        return None
    (count,) = raw_connection.execute(
        COUNT, (scope_id, max_rows + 1, scope_id, max_rows + 1)
    ).fetchone()
    if count > max_rows:
        return None
    return [load(conn, table, scope_id) for table in tables]


def load(conn: Connection, table: str, scope_id: int) -> ScopePostings | None:
    """Return the rows and words of a scope; None if they are too many, or cannot be read so."""
    if (raw_connection := driver(conn)) is None:
        return None
    (listing,) = raw_connection.execute(
        MESSAGES if table == MESSAGES_INDEX else PASSAGES, (scope_id,)
    ).fetchone()
    listed_rows = _decode(listing)
    if len(listed_rows) > MOST_ROWS:
        return None
    if table == MESSAGES_INDEX:
        (tasks,) = raw_connection.execute(TASKS, (scope_id,)).fetchone()
        rows = PostedRows(_messages(listed_rows), msgspec.json.decode(tasks, type=list[int]))
    else:
        rows = PostedRows(_passages(listed_rows))
        _link_moments(rows, [row[1] for row in listed_rows])
    # A constant name.
    raw_connection.execute(LISTED.format(table))
    prefix = scope_mark(scope_id)
    following = f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}"
    (words,) = raw_connection.execute(
        WORDS.format(table), (len(prefix) + 1, prefix, following)
    ).fetchone()
    try:
        return ScopePostings.load(rows, words or "")
    except Stale:
        return None


def _messages(listed_rows: Listed) -> Iterator[PostedRow]:
    for key, conversation, seconds, fraction, is_spoken, _ in listed_rows:
        yield PostedRow(
            key, conversation, seconds + fraction / FRACTION, bool(is_spoken), bool(is_spoken)
        )


def _passages(listed_rows: Listed) -> Iterator[PostedRow]:
    for key, _, seconds, fraction, _, is_shown in listed_rows:
        yield PostedRow(key, 0, seconds + fraction / FRACTION, False, bool(is_shown))


def _link_moments(rows: PostedRows, nodes: list[int]) -> None:
    """Make neighbours of passages that were stored at the same moment, see `passages`."""
    last_by_node: dict[int, int] = {}
    for number, node in enumerate(nodes):
        if not rows.shown[number]:
            continue
        previous_number = last_by_node.get(node)
        if previous_number is not None and rows.at[previous_number] == rows.at[number]:
            rows.link(number, previous_number)
        last_by_node[node] = number
