"""Archival memory rows: passages with search documents; exact duplicates are stored once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, literal, select, text

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
from memory.stores.sql.engine.statements import rows_of_keys
from memory.stores.sql.index import vectors
from memory.stores.sql.rows.jobs import enqueue
from memory.stores.sql.rows.messages import BOUNDS, FoundRows, SearchQuery, ancestors, search_index

p = t.passages.c


encode, decode = msgspec.json.encode, msgspec.json.decode


Passage = dict[str, Any]


# seconds between passages that belong together, such as pieces of one text
# moment
TOGETHER = 0.0


BEFORE = text(
    "SELECT content, created_at FROM passages WHERE scope_id = :scope AND node = :node AND id "
    "< :key AND deleted_at IS NULL ORDER BY id DESC LIMIT 1"
)


_SAME_NODE_SQL = (
    "SELECT n.id FROM passages n WHERE n.scope_id = p.scope_id AND n.node = p.node AND "
    "n.deleted_at IS NULL AND n.id"
)


# contains no input
_NEAR_IN_TIME_SQL = f"abs((SELECT created_at FROM passages WHERE id = %s) - at) <= {TOGETHER}"


_ESCAPED = re.compile(r"[%_/]")  # what LIKE reads as more than itself


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


def add(conn: Connection, scope_id: int, new: NewPassage) -> tuple[list[dict[str, Any]], int]:
    """Split the text at sentence ends and store the passages.

    Returns (the passages, number of new ones).
    """
    now = new.created_at if new.created_at is not None else clock.now()
    out, made = [], 0
    for content in passages_of(new.content):
        digest = _digest(content, new.node)
        found = conn.execute(
            select(t.passages).where(
                p.scope_id == scope_id, p.digest == digest, p.deleted_at.is_(None)
            )
        ).first()
        if found is None:
            row = {"id": new_key(), "scope_id": scope_id, "content": content, "digest": digest}
            found = _insert(conn, new, {**row, "created_at": now})
            made += 1
        out.append(to_hit(found))
    if made:
        enqueue(conn, vectors.job_of(scope_id))
    return out, made


def find_exact(conn: Connection, scope_id: int, content: str) -> str | None:
    """Return the id of the passage of a named user that reads so, case and white space aside."""
    same = (p.scope_id == scope_id) & (p.digest == _digest(content, 0)) & p.deleted_at.is_(None)
    return conn.execute(select(p.public_id).where(same)).scalar()


def _digest(content: str, node: int) -> bytes:
    """Return what tells passages of one scope and branch apart."""
    words = collapse_whitespace(content).casefold().encode("utf-8", "surrogatepass")
    return keyed_hash(b"passage", str(node).encode(), words)


def _insert(conn: Connection, new: NewPassage, row: dict[str, Any]) -> Row[Any]:
    """Store one passage with its search document."""
    key, scope_id, content, now = (row[n] for n in ("id", "scope_id", "content", "created_at"))
    conn.execute(
        insert(t.passages).values(
            **row,
            public_id=new_id("passage"),
            node=new.node,
            tags=encode(list(new.tags)).decode(),
            type=new.type,
            importance=new.importance,
            actor=new.actor,
            source=new.source,
            quote=new.quote,
            speaker=new.speaker,
            written_by=new.written_by,
        )
    )
    before = _before(conn, PassagePlace(scope_id, new.node, key), now)
    document = SearchDocument(scope_id, content, _labels(content, new.tags), before, now)
    fts.put_document(conn, "passages_fts", key, document)
    return conn.execute(select(t.passages).where(p.id == key)).one()


def to_hit(row: Row[Any]) -> dict[str, Any]:
    """Return a passage as a dictionary. fades_at: when it is faint, None for never."""
    unused_since = row.created_at if row.used_at is None else row.used_at
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
    conn: Connection, scope_id: int, f: PassageFilter, near: SimilarityScores | None = None
) -> list[dict[str, Any]]:
    """Return hits, best first, or the newest without words to search.

    near: rows by similarity.
    """
    q = f.query
    driver = sql_driver(conn)
    rows = _candidates(
        driver, tuple(name for name in BOUNDS if getattr(q, name) is not None), len(f.tags)
    )
    values = {"scope": scope_id, **{name: getattr(q, name) for name in BOUNDS}}
    values |= {f"tag{i}": pattern for i, pattern in enumerate(_tag_patterns(f.tags))}

    def newest() -> Any:
        listed = _apply_filters(
            select(t.passages).where(p.scope_id == scope_id), q, _tag_patterns(f.tags)
        )
        return conn.execute(listed.order_by(p.id.desc()).limit(q.limit).offset(q.offset))

    found = search_index(
        conn,
        IndexScope("passages_fts", scope_id, rows, values, _neighbours),
        FoundRows(listed_hits(driver), newest),
        q,
        near or SimilarityScores(),
    )
    return as_shown(found)


def as_shown(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return hits with what a search shows of a passage."""
    return [
        {name: h[name] for name in FOUND}
        | {"key": h["id"], "id": h["public_id"], "tags": decode(h["tags"])}
        for h in hits
    ]


FOUND = ("content", "type", "importance", "created_at", "score", "coverage", "sharing", "why")


def filter_keys(scope_id: int, f: PassageFilter) -> Any:
    """Return the rows that pass the filters, as a query of row keys."""
    mine = select(p.id).where(p.scope_id == scope_id)
    return _apply_filters(mine, f.query, _tag_patterns(f.tags))


@cache
def listed_hits(driver: SqlDriver) -> Any:
    return select(t.passages).where(driver.is_listed(p.id))


@lru_cache(64)
def _candidates(driver: SqlDriver, bounds: tuple[str, ...], tags: int) -> Any:
    """Return the statement for candidates, kept. bounds: those of BOUNDS that a search sets."""
    unknown: Any = {name: bindparam(name) for name in bounds}
    visible = replace(SearchQuery(), **unknown)
    return _apply_filters(
        select(p.id, literal(0), p.created_at, func.substr(p.content, 1, TEXT)).where(
            p.scope_id + 0 == bindparam("scope"), driver.is_listed(p.id)
        ),
        visible,
        [bindparam(f"tag{i}") for i in range(tags)],
    )  # + 0: by row key


def _tag_patterns(tags: Sequence[str]) -> list[str]:
    """Return what finds each tag in the stored list of them."""
    quoted = (_ESCAPED.sub(r"/\g<0>", encode(tag).decode()) for tag in tags)
    return [f"%{pattern}%" for pattern in quoted]


def _apply_filters(query: Any, q: SearchQuery, tags: Sequence[Any]) -> Any:
    query = query.where(p.deleted_at.is_(None))
    if q.since is not None:
        query = query.where(p.created_at >= q.since)
    if q.until is not None:
        query = query.where(p.created_at <= q.until)
    if q.within is not None:
        query = query.where(p.node.in_(ancestors(q.within)))
    for pattern in tags:
        query = query.where(p.tags.like(pattern, escape="/"))
    return query


def _labels(content: str, tags: Sequence[str]) -> str:
    return " ".join([*tags, speaker_name(content)])


def _before(conn: Connection, place: PassagePlace, at: float) -> str:
    """Return the words of the passage stored right before, of the same text or moment."""
    scope, node, key = place
    row = conn.execute(BEFORE, {"scope": scope, "node": node, "key": key}).first()
    return str(row.content) if row and abs(row.created_at - at) <= TOGETHER else ""


def _neighbours(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return the passages stored right before and after each, if of the same moment."""
    rows = rows_of_keys(conn, BESIDE, keys)
    return {key: (before, after) for key, before, after in rows}


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
    return to_hit(row) if row else None


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
