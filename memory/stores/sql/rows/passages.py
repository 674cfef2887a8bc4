"""Archival memory rows: passages with search documents; exact duplicates are stored once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, func, literal, select

from memory.conversation.messages import collapse_whitespace, keyed_hash
from memory.errors import BadArguments
from memory.ids import clock, new_id, new_key
from memory.search.decay import TYPES, lasting_hours
from memory.search.query import passages_of, speaker_name
from memory.search.ranking import SimilarityScores
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import TEXT, IndexScope, SearchDocument
from memory.stores.sql.engine.statements import add_row, execute, rows_of_keys
from memory.stores.sql.index import vectors
from memory.stores.sql.rows.jobs import enqueue
from memory.stores.sql.rows.messages import BOUNDS, FoundRows, SearchQuery, ancestors, search_index

p = t.passages.c
encode = msgspec.json.encode
decode = msgspec.json.decode
Passage = dict[str, Any]

# seconds between passages that belong together, such as pieces of one text
# moment
TOGETHER = 0.0

BEFORE = (
    select(p.content, p.created_at)
    .where(
        p.scope_id == bindparam("scope"),
        p.node == bindparam("node"),
        p.id < bindparam("before"),
        p.deleted_at.is_(None),
    )
    .order_by(p.id.desc())
    .limit(1)
)
EXACT = select(t.passages).where(
    p.scope_id == bindparam("scope"), p.digest == bindparam("words"), p.deleted_at.is_(None)
)
BY_KEY = select(t.passages).where(p.id == bindparam("which"))

_SAME_NODE_SQL = (
    "SELECT n.id FROM passages n WHERE n.scope_id = p.scope_id AND n.node = p.node AND "
    "n.deleted_at IS NULL AND n.id"
)

# contains no input
_NEAR_IN_TIME_SQL = f"abs((SELECT created_at FROM passages WHERE id = %s) - at) <= {TOGETHER}"
# What LIKE reads as more than itself.
_ESCAPED = re.compile(r"[%_/]")

BESIDE = (
    # contains no input
    f"SELECT id, CASE WHEN {_NEAR_IN_TIME_SQL % 'a'} THEN a END, CASE WHEN "
    f"{_NEAR_IN_TIME_SQL % 'b'} THEN b END FROM (SELECT p.id, p.created_at AS at, "
    f"({_SAME_NODE_SQL} < p.id ORDER BY n.id DESC LIMIT 1) AS a, ({_SAME_NODE_SQL} > p.id ORDER "
    "BY n.id LIMIT 1) AS b FROM {listed} JOIN passages p ON p.id = k.value) AS near"
)


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A text to store.

    node: its branch for an unnamed user, else 0. created_at: Unix time, None for now. source:
    public id of the message it was extracted from. quote: the words there that it was taken from.
    speaker: who said them, where several speak. written_by: the user, in an agent's own memory.
    """

    content: str
    tags: Sequence[str] = ()
    type: str = "fact"
    importance: float = 0.5
    actor: str = "model"
    node: int = 0
    created_at: float | None = None
    source: str | None = None
    quote: str | None = None
    speaker: str | None = None
    written_by: str | None = None


class PassagePlace(NamedTuple):
    """Where a passage belongs. node: 0 outside of conversations."""

    scope: int
    node: int
    key: int


@dataclass(frozen=True, slots=True)
class PassageFilter:
    """Which passages to find. tags: a hit has all of these."""

    query: SearchQuery = field(default_factory=SearchQuery)
    tags: Sequence[str] = ()


def check(content: str, kind: str, importance: float) -> None:
    """Raise BadArguments if the values are not valid for a passage."""
    if not content.strip():
        raise BadArguments("`content` is empty: give the text to remember.")
    if kind not in TYPES:
        raise BadArguments(f"`type` is {kind!r}: use one of {', '.join(TYPES)}.")
    if not 0 <= importance <= 1:
        raise BadArguments(f"`importance` is {importance!r}: give a number from 0 to 1.")


def add(
    conn: Connection, scope_id: int, new_passage: NewPassage
) -> tuple[list[dict[str, Any]], int]:
    """Split the text at sentence ends and store the passages.

    Returns (the passages, number of new ones).
    """
    if new_passage.created_at is not None:
        now = new_passage.created_at
    else:
        now = clock.now()
    stored_hits = []
    made_count = 0
    for content in passages_of(new_passage.content):
        digest = _digest(content, new_passage.node)
        existing_row = execute(conn, EXACT, {"scope": scope_id, "words": digest}).first()
        if existing_row is None:
            row = {"id": new_key(), "scope_id": scope_id, "content": content, "digest": digest}
            existing_row = _insert(conn, new_passage, {**row, "created_at": now})
            made_count += 1
        stored_hits.append(to_hit(existing_row))
    if made_count:
        enqueue(conn, vectors.job_of(scope_id))
    return stored_hits, made_count


def find_exact(conn: Connection, scope_id: int, content: str) -> str | None:
    """Return the id of the passage of a named user that reads so, case and white space aside."""
    row = execute(conn, EXACT, {"scope": scope_id, "words": _digest(content, 0)}).first()
    return None if row is None else row.public_id


def _digest(content: str, node: int) -> bytes:
    """Return what tells passages of one scope and branch apart."""
    words = collapse_whitespace(content).casefold().encode("utf-8", "surrogatepass")
    return keyed_hash(b"passage", str(node).encode(), words)


def _insert(conn: Connection, new_passage: NewPassage, row: dict[str, Any]) -> Row[Any]:
    """Store one passage with its search document."""
    key, scope_id, content, now = (row[n] for n in ("id", "scope_id", "content", "created_at"))
    add_row(
        conn,
        t.passages,
        **row,
        public_id=new_id("passage"),
        node=new_passage.node,
        tags=encode(list(new_passage.tags)).decode(),
        type=new_passage.type,
        importance=new_passage.importance,
        actor=new_passage.actor,
        source=new_passage.source,
        quote=new_passage.quote,
        speaker=new_passage.speaker,
        written_by=new_passage.written_by,
    )
    words_before = _before(conn, PassagePlace(scope_id, new_passage.node, key), now)
    document = SearchDocument(
        scope_id, content, _labels(content, new_passage.tags), words_before, now
    )
    fts.put_document(conn, "passages_fts", key, document)
    stored_row: Row[Any] = execute(conn, BY_KEY, {"which": key}).one()
    return stored_row


def to_hit(row: Row[Any]) -> dict[str, Any]:
    """Return a passage as a dictionary. fades_at: when it is faint, None for never."""
    if row.used_at is None:
        unused_since = row.created_at
    else:
        unused_since = row.used_at
    hours = lasting_hours(row.type, row.importance, row.uses)
    return {
        "key": row.id,
        "id": row.public_id,
        "content": row.content,
        "tags": decode(row.tags),
        "type": row.type,
        "importance": row.importance,
        "actor": row.actor,
        "created_at": row.created_at,
        "source": row.source,
        "quote": row.quote,
        "speaker": row.speaker,
        "written_by": row.written_by,
        "forgotten_at": row.deleted_at,
        "forgotten_by": row.deleted_by,
        "superseded_by": row.superseded_by,
        "unused_since": unused_since,
        "fades_at": None if hours is None else unused_since + 3600.0 * hours,
    }


def search(
    conn: Connection,
    scope_id: int,
    passage_filter: PassageFilter,
    similarity: SimilarityScores | None = None,
) -> list[dict[str, Any]]:
    """Return hits, best first, or the newest without words to search.

    similarity: rows by similarity.
    """
    query = passage_filter.query
    driver = sql_driver(conn)
    bounds = tuple(name for name in BOUNDS if getattr(query, name) is not None)
    rows = _candidates(driver, bounds, len(passage_filter.tags))
    values = {"scope": scope_id, **{name: getattr(query, name) for name in BOUNDS}}
    values |= {f"tag{i}": pattern for i, pattern in enumerate(_tag_patterns(passage_filter.tags))}

    def newest() -> Any:
        page = {"limit": query.limit, "offset": query.offset}
        return execute(conn, _newest(bounds, len(passage_filter.tags)), values | page)

    passage_hits = search_index(
        conn,
        IndexScope("passages_fts", scope_id, rows, values, _neighbours),
        FoundRows(listed_hits(driver), newest),
        query,
        similarity or SimilarityScores(),
    )
    return as_shown(passage_hits)


def as_shown(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return hits with what a search shows of a passage."""
    return [
        {name: h[name] for name in FOUND}
        | {"key": h["id"], "id": h["public_id"], "tags": decode(h["tags"])}
        for h in hits
    ]


FOUND = ("content", "type", "importance", "created_at", "score", "coverage", "sharing", "why")


def filter_keys(scope_id: int, passage_filter: PassageFilter) -> Any:
    """Return the rows that pass the filters, as a query of row keys."""
    scope_passages = select(p.id).where(p.scope_id == scope_id)
    return _apply_filters(scope_passages, passage_filter.query, _tag_patterns(passage_filter.tags))


@cache
def listed_hits(driver: SqlDriver) -> Any:
    return select(t.passages).where(driver.is_listed(p.id))


@lru_cache(64)
def _newest(bounds: tuple[str, ...], tags: int) -> Any:
    """Return the statement for the newest passages, kept. bounds, tags: see `_candidates`."""
    bound_values: Any = {name: bindparam(name) for name in bounds}
    return (
        _apply_filters(
            select(t.passages).where(p.scope_id == bindparam("scope")),
            replace(SearchQuery(), **bound_values),
            [bindparam(f"tag{i}") for i in range(tags)],
        )
        .order_by(p.id.desc())
        .limit(bindparam("limit"))
        .offset(bindparam("offset"))
    )


@lru_cache(64)
def _candidates(driver: SqlDriver, bounds: tuple[str, ...], tags: int) -> Any:
    """Return the statement for candidates, kept. bounds: those of BOUNDS that a search sets."""
    bound_values: Any = {name: bindparam(name) for name in bounds}
    filter_query = replace(SearchQuery(), **bound_values)
    # + 0: by row key.
    return _apply_filters(
        select(p.id, literal(0), p.created_at, func.substr(p.content, 1, TEXT)).where(
            p.scope_id + 0 == bindparam("scope"), driver.is_listed(p.id)
        ),
        filter_query,
        [bindparam(f"tag{i}") for i in range(tags)],
    )


def _tag_patterns(tags: Sequence[str]) -> list[str]:
    """Return what finds each tag in the stored list of them."""
    quoted_tags = (_ESCAPED.sub(r"/\g<0>", encode(tag).decode()) for tag in tags)
    return [f"%{pattern}%" for pattern in quoted_tags]


def _apply_filters(query: Any, search_query: SearchQuery, tags: Sequence[Any]) -> Any:
    query = query.where(p.deleted_at.is_(None))
    if search_query.since is not None:
        query = query.where(p.created_at >= search_query.since)
    if search_query.until is not None:
        query = query.where(p.created_at <= search_query.until)
    if search_query.within is not None:
        query = query.where(p.node.in_(ancestors(search_query.within)))
    for pattern in tags:
        query = query.where(p.tags.like(pattern, escape="/"))
    return query


def _labels(content: str, tags: Sequence[str]) -> str:
    return " ".join([*tags, speaker_name(content)])


def _before(conn: Connection, place: PassagePlace, created_at: float) -> str:
    """Return the words of the passage stored right before, of the same text or moment."""
    scope, node, key = place
    row = execute(conn, BEFORE, {"scope": scope, "node": node, "before": key}).first()
    return str(row.content) if row and abs(row.created_at - created_at) <= TOGETHER else ""


def _neighbours(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return the passages stored right before and after each, if of the same moment."""
    rows = rows_of_keys(conn, BESIDE, keys)
    return {key: (previous_key, next_key) for key, previous_key, next_key in rows}


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, SearchDocument]]:
    """Return row keys and documents, in order, after a row key."""
    rows = conn.execute(select(t.passages).where(p.id > after).order_by(p.id).limit(limit))
    return [
        (
            r.id,
            SearchDocument(
                r.scope_id,
                r.content,
                _labels(r.content, decode(r.tags)),
                _before(conn, PassagePlace(r.scope_id, r.node, r.id), r.created_at),
                r.created_at,
            ),
        )
        for r in rows
    ]


def get(conn: Connection, scope_ids: Sequence[int], ident: str) -> dict[str, Any] | None:
    row = conn.execute(
        select(t.passages).where(
            p.scope_id.in_(scope_ids), p.public_id == ident, p.deleted_at.is_(None)
        )
    ).first()
    if row:
        return to_hit(row)
    return None


def remove(conn: Connection, scope_ids: Sequence[int], ident: str) -> int | None:
    """Remove one passage; return its row key, or None."""
    key: int | None = conn.execute(
        select(p.id).where(p.scope_id.in_(scope_ids), p.public_id == ident)
    ).scalar()
    if key is None:
        return None
    fts.drop(conn, "passages_fts", key)
    vectors.drop(conn, vectors.PASSAGES, [key])
    conn.execute(delete(t.passages).where(p.id == key))
    return key


def page_after(conn: Connection, scope_id: int, after: int, limit: int) -> list[dict[str, Any]]:
    """Return passages, oldest first, after a row key."""
    query = select(t.passages).where(p.scope_id == scope_id, p.deleted_at.is_(None), p.id > after)
    return [to_hit(row) for row in conn.execute(query.order_by(p.id).limit(limit))]


def page(conn: Connection, scope_id: int, before: int | None, limit: int) -> list[dict[str, Any]]:
    """Return passages, newest first, before a row key."""
    query = (
        select(t.passages)
        .where(p.scope_id == scope_id, p.deleted_at.is_(None))
        .order_by(p.id.desc())
        .limit(limit)
    )
    return [
        to_hit(r) for r in conn.execute(query.where(p.id < before) if before is not None else query)
    ]
