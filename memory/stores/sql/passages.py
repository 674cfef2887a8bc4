"""Archival memory rows: passages, each with its search document; exact duplicates are stored once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, func, insert, literal, select, text

from memory.errors import BadArguments
from memory.ids import new_id, new_key
from memory.jobs.queue import enqueue
from memory.messages import mac, squeeze
from memory.ranking import Near
from memory.search import named, passages_of
from memory.stores.sql import index, vectors
from memory.stores.sql import schema as t
from memory.stores.sql.index import TEXT, Corner, Doc
from memory.stores.sql.messages import Query, ancestors, ranked

p = t.passages.c
encode, decode = msgspec.json.encode, msgspec.json.decode
Passage = dict[str, Any]
TOGETHER = 0.0  # seconds between passages that belong together: pieces of one text, and what is said to be of one moment
BEFORE = text(
    "SELECT content, created_at FROM passages WHERE scope_id = :scope AND node = :node AND id < :key AND deleted_at IS NULL ORDER BY id DESC LIMIT 1"
)
_SAME = "SELECT n.id FROM passages n WHERE n.scope_id = p.scope_id AND n.node = p.node AND n.deleted_at IS NULL AND n.id"
_NEAR = f"abs((SELECT created_at FROM passages WHERE id = %s) - at) <= {TOGETHER}"  # noqa: S608 - no input in it
BESIDE = (
    f"SELECT id, CASE WHEN {_NEAR % 'a'} THEN a END, CASE WHEN {_NEAR % 'b'} THEN b END FROM ("  # noqa: S608 - no input in it
    f"SELECT p.id, p.created_at AS at, ({_SAME} < p.id ORDER BY n.id DESC LIMIT 1) AS a, ({_SAME} > p.id ORDER BY n.id LIMIT 1) AS b"
    " FROM json_each(?) k JOIN passages p ON p.id = k.value)"
)
TYPES = ("identity", "preference", "fact", "context", "trivial")


@dataclass(frozen=True, slots=True)
class Insert:
    """A text to keep. node: the branch it belongs to where nobody is named, else 0. created_at: seconds, None for now.
    source: the public id of the message it was taken from."""

    content: str
    tags: Sequence[str] = ()
    type: str = "fact"
    importance: float = 0.5
    actor: str = "model"
    node: int = 0
    created_at: float | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """tags: a hit has all of these."""

    query: Query = field(default_factory=Query)
    tags: Sequence[str] = ()


def check(content: str, kind: str, importance: float) -> None:
    """Raises BadArguments for what cannot be a passage."""
    if not content.strip():
        raise BadArguments("`content` is empty: give the text to remember.")
    if kind not in TYPES:
        raise BadArguments(f"`type` is {kind!r}: use one of {', '.join(TYPES)}.")
    if not 0 <= importance <= 1:
        raise BadArguments(f"`importance` is {importance!r}: give a number from 0 to 1.")


def add(conn: Connection, scope_id: int, new: Insert) -> tuple[list[dict[str, Any]], int]:
    """Splits the text into passages at sentence ends and stores them. Returns (the passages, how many of them are new)."""
    now = new.created_at if new.created_at is not None else time.time()
    out, made = [], 0
    for i, content in enumerate(passages_of(new.content)):
        digest = mac(
            b"passage",
            str(new.node).encode(),
            squeeze(content).casefold().encode("utf-8", "surrogatepass"),
        )
        found = conn.execute(
            select(t.passages).where(
                p.scope_id == scope_id, p.digest == digest, p.deleted_at.is_(None)
            )
        ).first()
        if found is None:
            key = new_key() + i
            conn.execute(
                insert(t.passages).values(
                    id=key,
                    public_id=new_id("passage"),
                    scope_id=scope_id,
                    node=new.node,
                    content=content,
                    tags=encode(list(new.tags)).decode(),
                    type=new.type,
                    importance=new.importance,
                    digest=digest,
                    actor=new.actor,
                    created_at=now,
                    source=new.source,
                )
            )
            index.put(
                conn,
                "passages_fts",
                key,
                Doc(
                    scope_id,
                    content,
                    _labels(content, new.tags),
                    _before(conn, (scope_id, new.node, key), now),
                    now,
                ),
            )
            found = conn.execute(select(t.passages).where(p.id == key)).one()
            made += 1
        out.append(shown(found))
    if made:
        enqueue(conn, vectors.job_of(scope_id))
    return out, made


def shown(row: Row[Any]) -> dict[str, Any]:
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
        "forgotten_at": row.deleted_at,
        "forgotten_by": row.deleted_by,
        "superseded_by": row.superseded_by,
    }


def search(
    conn: Connection, scope_id: int, f: Filter, near: Near | None = None
) -> list[dict[str, Any]]:
    """Hits, best first, or the newest when there are no words to look for. near: the rows nearest by meaning."""
    rows = _allowed(
        select(p.id, literal(0), p.created_at, func.substr(p.content, 1, TEXT)).where(
            p.scope_id + 0 == scope_id
        ),
        f,
    )  # + 0: by row key
    hits = select(t.passages)
    newest = _allowed(hits.where(p.scope_id == scope_id), f)
    found = ranked(
        conn,
        Corner("passages_fts", scope_id, rows, p.id, _beside),
        (hits, newest),
        f.query,
        near or Near(),
    )
    return [
        {
            "key": h["id"],
            "id": h["public_id"],
            "content": h["content"],
            "tags": decode(h["tags"]),
            "type": h["type"],
            "importance": h["importance"],
            "created_at": h["created_at"],
            "score": h["score"],
            "why": h["why"],
        }
        for h in found
    ]


def narrowed(scope_id: int, f: Filter) -> Any:
    """The rows that the filters leave, as a query of row keys."""
    return _allowed(select(p.id).where(p.scope_id == scope_id), f)


def _allowed(query: Any, f: Filter) -> Any:
    q = f.query
    query = query.where(p.deleted_at.is_(None))
    if q.since is not None:
        query = query.where(p.created_at >= q.since)
    if q.until is not None:
        query = query.where(p.created_at <= q.until)
    if q.within is not None:
        query = query.where(p.node.in_(ancestors(q.within)))
    for tag in f.tags:
        query = query.where(p.tags.contains(encode(tag).decode(), autoescape=True))
    return query


def _labels(content: str, tags: Sequence[str]) -> str:
    return " ".join([*tags, named(content)])


def _before(conn: Connection, place: tuple[int, int, int], at: float) -> str:
    """The words of the passage stored right before, where it is of the same text or the same moment. place: scope, branch, key."""
    scope_id, node, key = place
    row = conn.execute(BEFORE, {"scope": scope_id, "node": node, "key": key}).first()
    return str(row.content) if row and abs(row.created_at - at) <= TOGETHER else ""


def _beside(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """The passages stored right before and after each, where they are of the same moment."""
    rows = conn.exec_driver_sql(BESIDE, (encode(keys).decode(),))
    return {key: (before, after) for key, before, after in rows}


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, Doc]]:
    """Row keys and what is indexed of them, in order, after a row key."""
    rows = conn.execute(select(t.passages).where(p.id > after).order_by(p.id).limit(limit))
    return [
        (
            r.id,
            Doc(
                r.scope_id,
                r.content,
                _labels(r.content, decode(r.tags)),
                _before(conn, (r.scope_id, r.node, r.id), r.created_at),
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
    return shown(row) if row else None


def remove(conn: Connection, scope_ids: Sequence[int], ident: str) -> int | None:
    """Forgets one passage. Returns its row key, or None when there is none."""
    key: int | None = conn.execute(
        select(p.id).where(p.scope_id.in_(scope_ids), p.public_id == ident)
    ).scalar()
    if key is None:
        return None
    index.drop(conn, "passages_fts", key)
    vectors.drop(conn, vectors.PASSAGES, [key])
    conn.execute(delete(t.passages).where(p.id == key))
    return key


def page(conn: Connection, scope_id: int, before: int | None, limit: int) -> list[dict[str, Any]]:
    """Newest first, before a row key."""
    query = (
        select(t.passages)
        .where(p.scope_id == scope_id, p.deleted_at.is_(None))
        .order_by(p.id.desc())
        .limit(limit)
    )
    return [
        shown(r) for r in conn.execute(query.where(p.id < before) if before is not None else query)
    ]
