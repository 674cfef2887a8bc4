"""The search index on Postgres: the numbers of a row's words in an array, under a GIN index.

- A number stands for a column and the stored form of a word, as SQLite's tokenizer makes it, in one
  scope. It is keyed by the server's secret: the index holds no word. 28 bits of the scope stand
  above 36 of the word, so that one scope's numbers lie together in the index. Two of 3,000 words of
  a scope share a number with probability 7e-5, which costs a wrong posting in that scope alone.
- It answers what `fts` asks of SQLite: which rows of a scope have a word, the newest first. All
  ranking is done there, so both stores rank alike.
- Many workers commit at once, so a key up to which all is indexed would pass over some for ever:
  each message that waits is named, in the transaction that stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal, select, text

from memory.search.query import TermLookup, scope_mark
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.postgres.postgres_statements import fetch, fetch_sql
from memory.stores.sql.engine.sql_driver import IndexPlace, ScopeBacklog, SharedWords
from memory.stores.sql.index.stems import Stemmer

TABLES = {
    "messages_fts": "message_terms",
    "passages_fts": "passage_terms",
    "file_passages_fts": "file_passage_terms",
}
WORD_BITS = 36
_stems = Stemmer()
_OF_SCOPE = "AND u.scope_id = :scope ORDER BY u.id DESC"
_OF_ALL = "ORDER BY u.id"
_NEXT = "SELECT m.* FROM unindexed u JOIN messages m ON m.id = u.id WHERE true {} LIMIT :most"
# Another indexer's messages are left to it. A search waits for those of its scope.
NEXT = text(_NEXT.format(_OF_ALL) + " FOR UPDATE OF u SKIP LOCKED")
NEXT_HERE = text(_NEXT.format(_OF_SCOPE) + " FOR UPDATE OF u")
_SIZE = f"SELECT coalesce(sum(length(w.content) + length(w.body)), 0) FROM ({_NEXT}) w"
SIZE = text(_SIZE.format(_OF_ALL))
SIZE_HERE = text(_SIZE.format(_OF_SCOPE))
WAITS = """SELECT EXISTS (SELECT FROM unindexed u JOIN messages m ON m.id = u.id
WHERE u.scope_id = $1 AND m.conversation IS DISTINCT FROM $2::bigint)"""
# Only what is said in one conversation has an order.
NEWEST_SAID = select(
    select(func.max(t.messages.c.id))
    .where(t.messages.c.conversation == bindparam("conversation"))
    .scalar_subquery()
    .label("stored")
)


class PostgresIndex:
    """What `SearchIndex` says, of a server."""

    newest: Sequence[Any] = (*NEWEST_SAID.selected_columns, literal(0).label("indexed"))

    def put_document(
        self, conn: Connection, table: str, place: tuple[int, int], columns: Mapping[str, str]
    ) -> None:
        key, scope_id = place
        fetch_sql(
            conn,
            # a constant name
            f"INSERT INTO {TABLES[table]} (id, scope_id, terms) VALUES ($1, $2, $3) ON CONFLICT "
            "(id) DO UPDATE SET scope_id = excluded.scope_id, terms = excluded.terms",
            key,
            scope_id,
            term_numbers(_key(conn), scope_id, columns),
        )

    def drop(self, conn: Connection, table: str, keys: Sequence[int]) -> None:
        """Remove documents, and what waits to become one."""
        # First: who is indexing one of them is waited for.
        if table == "messages_fts":
            self._end_waiting(conn, keys)
        # a constant name
        sql = f"DELETE FROM {TABLES[table]} WHERE id = ANY($1::bigint[])"
        fetch_sql(conn, sql, list(keys))

    def postings(
        self, conn: Connection, place: IndexPlace, lookups: Sequence[TermLookup], max_rows: int
    ) -> list[list[int]]:
        words = [("speaker" if x.column == "voice" else x.column, x.words) for x in lookups]
        return _postings(conn, place, words, max_rows)

    def list_sharing_words(self, conn: Connection, scope_id: int, shared: SharedWords) -> list[int]:
        key = _key(conn)
        pair_numbers = [n for w in shared.pairs for n in _of_query(key, scope_id, "body", [w])]
        every_number = [n for w in shared.every for n in _of_query(key, scope_id, "body", [w])]
        oldest_rows = fetch_sql(
            conn,
            "SELECT id FROM passages WHERE scope_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2",
            scope_id,
            shared.newest,
        )
        look = "SELECT * FROM (SELECT id FROM passage_terms WHERE scope_id = $1 AND {} ORDER BY id"
        look += f" + 0 DESC LIMIT {shared.most}) q"
        common_count = "(SELECT count(*) FROM unnest($2::bigint[]) x WHERE x = ANY(terms))"
        rows = fetch_sql(
            conn,
            f"{look.format(f'terms && $2::bigint[] AND id > $3 AND {common_count} >= $5')} UNION "
            f"{look.format('terms @> $4::bigint[]')} ORDER BY 1",
            scope_id,
            pair_numbers,
            oldest_rows[0][0] if oldest_rows else 0,
            every_number,
            min(len(pair_numbers), 2),
        )
        return [row[0] for row in rows]

    def list_speakers(
        self, conn: Connection, place: tuple[str, int], words: Sequence[str]
    ) -> list[str]:
        matches = _postings(conn, IndexPlace(*place), [("speaker", (word,)) for word in words], 1)
        return [word for word, keys in zip(words, matches, strict=True) if keys]

    def count_rows(self, conn: Connection, rows: str, scope_id: int, max_rows: int) -> int:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {rows} WHERE scope_id = $1 LIMIT {max_rows}) q"
        return int(fetch_sql(conn, sql, scope_id)[0][0])

    def is_outdated(self, conn: Connection) -> bool:
        """Return False: its format has not changed yet."""
        return False

    def empty(self, conn: Connection) -> None:
        """Remove every document; all messages wait to be indexed again by a rebuild."""
        # Constant names.
        tables = ", ".join(("unindexed", *TABLES.values()))
        fetch_sql(conn, f"TRUNCATE {tables}")

    def list_beside_rows(
        self, conn: Connection, tables: tuple[str, str], after: int, limit: int
    ) -> list[tuple[int, int | None]]:
        table, rows = tables
        sql = (
            f"SELECT f.id, r.id FROM (SELECT id FROM {TABLES[table]} WHERE id > $1 ORDER BY id "
            f"LIMIT $2) f LEFT JOIN {rows} r ON r.id = f.id ORDER BY f.id"
        )
        return [(row[0], row[1]) for row in fetch_sql(conn, sql, after, limit)]

    def newest_key(self, conn: Connection, conversation: int) -> int:
        rows = fetch(conn, NEWEST_SAID, {"conversation": conversation})
        return rows[0][0] or 0

    def add_waiting(self, conn: Connection, scope_id: int, keys: Sequence[int]) -> None:
        fetch_sql(
            conn,
            "INSERT INTO unindexed (id, scope_id) SELECT k, $2 FROM unnest($1::bigint[]) AS u(k) "
            "ON CONFLICT DO NOTHING",
            list(keys),
            scope_id,
        )

    def list_waiting(
        self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None
    ) -> Sequence[Any]:
        if backlog is None:
            return conn.execute(NEXT, {"most": max_rows}).all()
        return conn.execute(NEXT_HERE, {"most": max_rows, "scope": backlog.scope_id}).all()

    def waiting_size(self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None) -> int:
        if backlog is None:
            return int(conn.execute(SIZE, {"most": max_rows}).scalar_one())
        values = {"most": max_rows, "scope": backlog.scope_id}
        return int(conn.execute(SIZE_HERE, values).scalar_one())

    def settle(
        self, conn: Connection, rows: Sequence[Any], max_rows: int, scope_id: int | None
    ) -> int:
        self._end_waiting(conn, [row.id for row in rows])
        return len(rows)

    def _end_waiting(self, conn: Connection, keys: Sequence[int]) -> None:
        fetch_sql(conn, "DELETE FROM unindexed WHERE id = ANY($1::bigint[])", list(keys))

    def has_waiting(self, conn: Connection, backlog: ScopeBacklog, but: int | None) -> bool:
        return bool(fetch_sql(conn, WAITS, backlog.scope_id, but)[0][0])

    def note_indexed(self, conn: Connection, key: int, before: Any) -> None:
        """Do nothing: what was indexed at once never waited."""

    def read_newest(self, conn: Connection) -> Any:
        """Return nothing, since no key says up to which all is indexed."""


def term_numbers(key: bytes, scope_id: int, columns: Mapping[str, str]) -> list[int]:
    """Return the numbers that stand for a document. key: the server's secret."""
    numbers: set[int] = set()
    prefix_length = len(scope_mark(scope_id))
    for column, marked_words in columns.items():
        words = [word[prefix_length:] for word in marked_words.split()]
        numbers.update(_of_words(key, scope_id, column, words))
    return list(numbers)


def _postings(
    conn: Connection,
    place: IndexPlace,
    lookups: Sequence[tuple[str, Sequence[str]]],
    max_rows: int,
) -> list[list[int]]:
    """Return for each lookup the newest rows with any of its words in its column.

    lookups: column and words, without the scope's mark. max_rows: rows of one
    lookup.
    """
    scope_id = place.scope_id
    term_places: list[int] = []
    numbers: list[int] = []
    for i, (column, words) in enumerate(lookups):
        for number in _of_query(_key(conn), scope_id, column, words):
            term_places.append(i)
            numbers.append(number)
    postings_by_lookup: list[list[int]] = [[] for _ in lookups]
    sql = (
        "SELECT l.i, r.keys FROM (SELECT i, array_agg(x) AS n FROM unnest($2::int[], $3::bigint[]) "
        f"AS u(i, x) GROUP BY i) l, LATERAL ({_select_keys(place, max_rows)}) r "
        "WHERE r.keys IS NOT NULL"
    )
    for i, keys in fetch_sql(conn, sql, scope_id, term_places, numbers):
        postings_by_lookup[i] = keys
    return postings_by_lookup


def _select_keys(place: IndexPlace, max_rows: int) -> str:
    """Return the statement for the newest rows with any of the numbers `l.n`, as an array."""
    between = f"AND id BETWEEN {place.first} AND {place.last} " if place.is_bounded else ""
    rows = f"SELECT id FROM {TABLES[place.table]} WHERE scope_id = $1 AND terms && l.n {between}"
    if place.drops_frequent:
        # Ends at the first rows that are too many. Materialized: planned as if all were read, that
        # is by the index.
        return (
            f"WITH m AS MATERIALIZED ({rows}) SELECT CASE WHEN count(*) < {max_rows} THEN "
            f"array_agg(q.id) END AS keys FROM (SELECT id FROM m LIMIT {max_rows}) q"
        )
    # + 0: sorted, not walked through everyone's rows in the order of their keys
    return f"SELECT array_agg(q.id) AS keys FROM ({rows}ORDER BY id + 0 DESC LIMIT {max_rows}) q"


def _key(conn: Connection) -> bytes:
    return bytes(conn.info["key"])


def _of_words(key: bytes, scope_id: int, column: str, words: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of words as they are stored.

    A word that SQLite splits is found by each beginning of its tokens.
    """
    scope_number = _above(key, scope_id)
    for tokens in _stems.tokens(words, len(scope_mark(scope_id))):
        for end in range(1, len(tokens) + 1):
            yield scope_number | _below(key, column, tokens[:end])


def _of_query(key: bytes, scope_id: int, column: str, words: Sequence[str]) -> list[int]:
    """Return the number of each word of a query."""
    scope_number = _above(key, scope_id)
    tokens_by_word = _stems.tokens(words, len(scope_mark(scope_id)))
    return [scope_number | _below(key, column, tokens) for tokens in tokens_by_word]


@lru_cache(65_536)
def _below(key: bytes, column: str, tokens: tuple[str, ...]) -> int:
    """Return the lower bits of the number of a column and a stored word."""
    word = "\x00".join((column, *tokens)).encode("utf-8", "surrogatepass")
    digest = blake2b(word, key=key[:64], digest_size=8, person=b"term").digest()
    return int.from_bytes(digest, "big") >> (64 - WORD_BITS)


@lru_cache(4096)
def _above(key: bytes, scope_id: int) -> int:
    """Return the upper bits of a scope's numbers, as a signed number of 64 bits."""
    digest = blake2b(str(scope_id).encode(), key=key[:64], digest_size=8, person=b"scope").digest()
    return int.from_bytes(digest, "big", signed=True) >> WORD_BITS << WORD_BITS
