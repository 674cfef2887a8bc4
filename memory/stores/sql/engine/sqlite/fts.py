"""The search index of messages and passages: add, remove, look up, rebuild.

The index is the database's own (see `SearchIndex`): FTS5 on SQLite, arrays on Postgres. A search
reads the postings of its words in its own scope and scores them here (see `memory.search.ranking`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, select

from memory.ids import MAX_KEY
from memory.search.expansion import HITS, MAX_RELATED, related_words, widen
from memory.search.query import (
    TERMS_VERSION,
    TermLookup,
    excerpt,
    has_words,
    index_words,
    mark_words,
    spoken_day,
    term_lookups,
    terms,
    word_lookup,
)
from memory.search.ranking import (
    DIGITS,
    POOL,
    Matches,
    Ranked,
    SearchHits,
    SimilarityScores,
    rank,
    weigh_postings,
)
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import IndexPlace, SharedWords, sql_driver
from memory.stores.sql.engine.statements import execute, key_list, put_row
from memory.stores.sql.index.index_changes import DocumentWords, IndexChange, note_change

# most postings of a word that are read; a frequent word distinguishes nothing
MAX_OCCURRENCES = 5000
# Most documents counted for the rarity of a word.
COUNTED = 20_000
CHUNK = 400
# Indexed of a text.
MAX_DOCUMENT_CHARACTERS = 100_000
# Of one message, unless the database says otherwise.
INDEX_CHARACTERS = 8000
MESSAGES_INDEX = "messages_fts"
PASSAGES_INDEX = "passages_fts"
FILES_INDEX = "file_passages_fts"
# Of `TERMS_VERSION`, among the marks.
TERMS_MARK = "terms"
_TERMS_MARK = select(t.marks.c.upto).where(t.marks.c.name == TERMS_MARK)
_ANY_ROW = (
    select(t.messages.c.id)
    .union_all(select(t.passages.c.id), select(t.file_tables.file_passages.c.id))
    .limit(1)
)
LIMIT_OPTION = "mnemogate_index_limit"
# Indexed of a speaker, and of the message before.
BESIDE_CHARACTERS = 500
# Seconds.
DAY = 86400
# Characters of a candidate that are inspected.
TEXT = 400
# Speakers without names.
ROLES = ("user", "assistant")
# Words of a text used to find its duplicates.
SHARED, RAREST = 32, 6
# Passages among which, and that are looked at.
RECENT_ROWS, MAX_ALIKE_ROWS = 1000, 24
# Candidates of a search that each turn makes.
QUICK_POOL = 50
Beside = Callable[[Connection, Sequence[int]], dict[int, tuple[int | None, int | None]]]


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """What is indexed of one row.

    before: the words of the preceding message. at: Unix time.
    """

    scope_id: int
    body: str
    speaker: str
    before: str
    at: float


@dataclass(slots=True)
class IndexLimit:
    """How many characters of one message are indexed, see `excerpt`.

    A database's connections carry it, since whoever stores a message indexes it.
    """

    characters: int = INDEX_CHARACTERS


def index_limit(conn: Connection) -> IndexLimit:
    """Return the limit of a connection's database."""
    limit_option = conn.get_execution_options().get(LIMIT_OPTION)
    # Of a migration, or a command.
    if isinstance(limit_option, IndexLimit):
        return limit_option
    return IndexLimit()


def put_document(conn: Connection, table: str, key: int, doc: SearchDocument) -> None:
    """Add one document to the index, replacing one with the same key."""
    put_words(conn, table, key, doc.scope_id, document_words(table, doc, index_limit(conn)))


def put_words(conn: Connection, table: str, key: int, scope_id: int, words: DocumentWords) -> None:
    """Add one document of a scope to the index."""
    note_change(conn, IndexChange(table, scope_id, key=key, words=words))
    columns = {name: mark_words(scope_id, column_words) for name, column_words in words.items()}
    sql_driver(conn).index.put_document(conn, table, (key, scope_id), columns)


def document_columns(table: str, doc: SearchDocument, limit: IndexLimit) -> dict[str, str]:
    """Return what is indexed of a document, by column. limit: of a message."""
    words = document_words(table, doc, limit)
    return {name: mark_words(doc.scope_id, column_words) for name, column_words in words.items()}


def document_words(table: str, doc: SearchDocument, limit: IndexLimit) -> DocumentWords:
    """Return the words of a document, by column. limit: of a message."""
    max_characters = MAX_DOCUMENT_CHARACTERS
    if table == MESSAGES_INDEX:
        max_characters = min(max_characters, limit.characters)
    body = excerpt(doc.body, max_characters)
    return {
        "body": index_words(body),
        "speaker": index_words(doc.speaker[:BESIDE_CHARACTERS]),
        "prev": index_words(doc.before[:BESIDE_CHARACTERS], telling=True),
        "day": index_words(_day(int(doc.at // DAY))),
    }


@lru_cache(64)
def _day(number: int) -> str:
    """Return the words for a day, counted from 1970; cached, since most rows are of today."""
    return spoken_day(number * DAY)


def candidates_sharing_words(conn: Connection, scope_id: int, words: Sequence[str]) -> list[int]:
    """Return row keys of the newest passages that may be near duplicates, a limited number.

    words: rarest first. Returns passages of any age with all of the rarest words, and of the newest
    ones those with two of a few words: of two near duplicates each lacks at most a fifth of the
    other's words, so of that many words plus two, two are in both.
    """
    if not words:
        return []
    pairs = words[: min(len(words), SHARED) // 5 + 2]
    shared = SharedWords(pairs, words[:RAREST], RECENT_ROWS, MAX_ALIKE_ROWS)
    return sql_driver(conn).index.list_sharing_words(conn, scope_id, shared)


def drop(conn: Connection, table: str, key: int) -> None:
    """Remove one document."""
    note_change(conn, IndexChange(table, None, gone=key))
    sql_driver(conn).index.drop(conn, table, [key])


@dataclass(frozen=True, slots=True)
class IndexScope:
    """One scope's part of an index.

    rows: query for (id, place, at, text) of those of `key_list` that are visible, a kept statement.
    values: its other parameters. beside: returns the rows before and after given rows; None if rows
    have no neighbours. first, last: of the row keys that are looked at. size: rows of the scope,
    None to count them. may_hold: tells whether any row can have a word in a column.
    """

    table: str
    scope_id: int
    rows: Any
    values: Mapping[str, Any]
    beside: Beside | None = None
    first: int = 0
    last: int = MAX_KEY
    size: int | None = None
    may_hold: Callable[[TermLookup], bool] | None = None


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What is looked for.

    wanted: rows at least, if there are so many. thorough: all terms count, of many candidates, and
    words of the best hits are looked for too; else it is quick enough for every turn. least: the
    coverage that the best row of a quick search needs, else nothing is returned.
    """

    text: str
    wanted: int
    thorough: bool = True
    least: float = 0.0

    @property
    def candidates(self) -> int:
        """How many rows are looked at closely."""
        return max(POOL if self.thorough else QUICK_POOL, self.wanted)


def find_rows(
    conn: Connection, corner: IndexScope, query: IndexQuery, similarity: SimilarityScores
) -> dict[int, Ranked] | None:
    """Return row keys with scores, best first.

    None without words to search. similarity: rows by similarity. Raises StoreUnavailable.
    """
    if not has_words(query.text):
        return None
    if not (size := _size(conn, corner)):
        return {}
    lookups = list(term_lookups(corner.scope_id, query.text, thorough=query.thorough))
    if corner.may_hold is not None:
        lookups = list(filter(corner.may_hold, lookups))
    matches = _matches(conn, corner, lookups, size)
    rows = _StoredRows(conn, corner)
    limits = (query.candidates, query.wanted)
    if not query.thorough:
        is_covered = round(matches.best_coverage(), DIGITS) >= query.least
        if query.least and not (similarity or is_covered or matches.sharing):
            return {}
        return rank(rows, query.text, matches, similarity, limits)[0]
    # By words alone: what is similar is not to choose the words that are looked for.
    no_similarity = SimilarityScores()
    ranked_rows, pool = rank(rows, query.text, matches, no_similarity, (query.candidates, HITS))
    texts = [(pool[k].text, r.score) for k, r in ranked_rows.items() if k in pool]
    words = related_words({w for x in lookups for w in x.words}, texts)
    lookups = [word_lookup(corner.scope_id, w) for w in words]
    if lookups:
        postings = _postings(conn, corner, lookups, MAX_RELATED)
    else:
        postings = []
    return rank(rows, query.text, widen(matches, words, postings), similarity, limits)[0]


def list_hits(
    conn: Connection,
    statement: Any,
    ranked_rows: Mapping[int, Ranked],
    similarity: SimilarityScores,
) -> list[dict[str, Any]]:
    """Return ranked rows as a search shows them. statement: statement for those of `key_list`."""
    by_key = {row.id: row for row in execute(conn, statement, key_list(conn, list(ranked_rows)))}
    return [
        {
            **by_key[k]._asdict(),
            "score": round(ranked_row.score, DIGITS),
            "coverage": round(ranked_row.coverage, DIGITS),
            "sharing": ranked_row.is_sharing,
            "why": ranked_row.why
            | ({"similarity": round(similarity[k], 4)} if k in similarity else {}),
        }
        for k, ranked_row in ranked_rows.items()
        if k in by_key
    ]


class _StoredRows:
    """The candidates of one search, each read once: it ranks them twice."""

    def __init__(self, conn: Connection, corner: IndexScope) -> None:
        self._conn = conn
        self._corner = corner
        self._rows: dict[int, SearchHits | None] = {}
        self._neighbour_keys: dict[int, tuple[int | None, int | None]] = {}

    def get(self, keys: Sequence[int]) -> dict[int, SearchHits]:
        """Return the rows that pass the filters, in order."""
        if new_keys := [k for k in keys if k not in self._rows]:
            self._rows |= dict.fromkeys(new_keys) | _rows(self._conn, self._corner, new_keys)
        return {k: row for k in keys if (row := self._rows[k]) is not None}

    def leading(self, matches: Matches, count: int) -> list[SearchHits]:
        """Return the best `count` rows that pass the filters, in order."""
        keys = matches.best()
        leading_rows: list[SearchHits] = []
        step = min(CHUNK, count)
        for i in range(0, len(keys), step):
            leading_rows += self.get(keys[i : i + step]).values()
            if len(leading_rows) >= count:
                break
        return leading_rows[:count]

    def neighbours(
        self, keys: Sequence[int]
    ) -> dict[int, tuple[SearchHits | None, SearchHits | None]]:
        """Return the rows before and after each of these, if they may be shown."""
        if self._corner.beside is None:
            return {}
        if new_keys := [k for k in keys if k not in self._neighbour_keys]:
            neighbour_keys = self._corner.beside(self._conn, new_keys)
            self._neighbour_keys |= {key: neighbour_keys.get(key, (None, None)) for key in new_keys}
        pairs = {key: self._neighbour_keys[key] for key in keys}
        neighbour_rows = self.get(
            sorted({k for pair in pairs.values() for k in pair if k is not None})
        )
        return {
            key: (neighbour_rows.get(a or 0), neighbour_rows.get(b or 0))
            for key, (a, b) in pairs.items()
        }


def speakers(conn: Connection, kind: str, scope_id: int, query: str) -> list[str]:
    """Return the words of a query that are part of a speaker's name or a tag in the scope.

    kind: messages or passages.
    """
    query_terms = [w for w in terms(query) if w not in ROLES]
    if not query_terms:
        return []
    return sql_driver(conn).index.list_speakers(conn, (f"{kind}_fts", scope_id), query_terms)


def _size(conn: Connection, corner: IndexScope) -> int:
    """Return how many rows the scope has; of many, that it has `COUNTED`."""
    if corner.size is not None:
        return min(corner.size, COUNTED)
    rows = corner.table.removesuffix("_fts")
    return sql_driver(conn).index.count_rows(conn, rows, corner.scope_id, COUNTED)


def _matches(
    conn: Connection, corner: IndexScope, lookups: Sequence[TermLookup], size: int
) -> Matches:
    """Read the postings of each lookup, and weigh them. size: rows of the scope."""
    keys = _postings(conn, corner, lookups, MAX_OCCURRENCES)
    postings = ((x.term, x.column, k) for x, k in zip(lookups, keys, strict=True))
    return weigh_postings(postings, size, {x.term for x in lookups if x.is_topical})


def _postings(
    conn: Connection, corner: IndexScope, lookups: Sequence[TermLookup], max_rows: int
) -> list[list[int]]:
    """Return the newest rows of each lookup, at most so many."""
    # Of a related word, such rows count for nothing.
    drops_frequent = max_rows == MAX_RELATED
    place = IndexPlace(
        corner.table, corner.scope_id, corner.first, corner.last, drops_frequent=drops_frequent
    )
    return sql_driver(conn).index.postings(conn, place, lookups, max_rows)


def _rows(conn: Connection, corner: IndexScope, keys: Sequence[int]) -> dict[int, SearchHits]:
    rows = execute(conn, corner.rows, {**corner.values, **key_list(conn, keys)})
    return {row[0]: SearchHits(row[0], row[1], row[2], row[3]) for row in rows}


def is_outdated(conn: Connection) -> bool:
    """Tell whether an older version made the index, in another format or of other words."""
    if sql_driver(conn).index.is_outdated(conn):
        return True
    index_version = execute(conn, _TERMS_MARK, {}).scalar()
    return index_version != TERMS_VERSION and execute(conn, _ANY_ROW, {}).first() is not None


def note_terms(conn: Connection) -> None:
    """Note that all documents are of this version's words."""
    put_row(conn, t.marks, ("name",), name=TERMS_MARK, upto=TERMS_VERSION)


def note_terms_of_nothing(conn: Connection) -> None:
    """Note that what will be indexed is of this version's words, if nothing is yet."""
    if execute(conn, _ANY_ROW, {}).first() is None:
        note_terms(conn)


def recreate_indexes(conn: Connection) -> None:
    """Recreate both indexes, empty."""
    sql_driver(conn).index.empty(conn)


def delete_orphans(
    conn: Connection, table: str, rows: str, after: int, limit: int = 200
) -> Sequence[int]:
    """Remove documents without a row, among the next ones after a row key.

    Returns the keys that were checked.
    """
    index = sql_driver(conn).index
    document_rows = index.list_beside_rows(conn, (table, rows), after, limit)
    orphans = [key for key, row in document_rows if row is None]
    for key in orphans:
        note_change(conn, IndexChange(table, None, gone=key))
    index.drop(conn, table, orphans)
    return [key for key, _ in document_rows]


def reindex_documents(
    conn: Connection, table: str, docs: Iterable[tuple[int, SearchDocument]]
) -> None:
    """Index documents again."""
    for key, doc in docs:
        drop(conn, table, key)
        put_document(conn, table, key, doc)
