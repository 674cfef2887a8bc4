"""Passages of files with their search documents, and the text that they tell again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, literal, select

from memory.formats.documents.cutting import SIZE
from memory.formats.documents.line_matching import PATTERN_CHARACTERS
from memory.ids import MAX_KEY, STEP, new_key
from memory.search.query import index_words, mark_words
from memory.search.ranking import SimilarityScores
from memory.stores.sql.engine.file_tables import file_passages, file_versions, files
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite.fts import (
    FILES_INDEX,
    TEXT,
    IndexQuery,
    IndexScope,
    SearchDocument,
)
from memory.stores.sql.engine.sqlite.fts import find_rows as find_in_index
from memory.stores.sql.engine.sqlite.fts import list_hits as list_index_hits
from memory.stores.sql.engine.statements import add_rows, rows_of_keys, rows_of_pairs
from memory.stores.sql.rows.file_words import read_file_words

p = file_passages.c
f = files.c
v = file_versions.c
BESIDE = (
    "SELECT p.id, (SELECT a.id FROM file_passages a WHERE a.upload = p.upload AND a.position = "
    "p.position - 1), (SELECT b.id FROM file_passages b WHERE b.upload = p.upload AND b.position "
    "= p.position + 1) FROM {listed} JOIN file_passages p ON p.id = k.value"
)
# Following: what the passage behind begins with, where that goes on with the same line.
PLACED = (
    "SELECT p.upload, p.position, p.page, p.line_start, p.content, (SELECT "
    f"substr(b.content, 1, {PATTERN_CHARACTERS}) FROM file_passages b WHERE b.upload = p.upload "
    "AND b.position = p.position + 1 AND b.line_start = p.line_end) FROM {listed} "
    "JOIN file_passages p ON p.upload = k.first AND p.position = k.second"
)


class PlacedPassage(NamedTuple):
    """A passage at its place in its upload. following: see `PLACED`."""

    upload: int
    position: int
    page: int
    line_start: int
    content: str
    following: str | None


@dataclass(frozen=True, slots=True)
class NewFilePassage:
    """A passage to store. words: of its content, as they are indexed."""

    position: int
    page: int
    line_start: int
    line_end: int
    content: str
    named: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class UploadPlace:
    """Where passages are stored. at: Unix time of the upload."""

    scope_id: int
    key: int
    name: str
    at: float


def add_passages(
    conn: Connection, place: UploadPlace, new_passages: Sequence[NewFilePassage]
) -> None:
    """Store passages of an upload, with their search documents."""
    first_key = new_key(len(new_passages))
    keys = [first_key + i * STEP for i in range(len(new_passages))]
    rows = [
        {
            "id": key,
            "scope_id": place.scope_id,
            "upload": place.key,
            "position": passage.position,
            "page": passage.page,
            "line_start": passage.line_start,
            "line_end": passage.line_end,
            "content": passage.content,
            "named": passage.named,
        }
        for key, passage in zip(keys, new_passages, strict=True)
    ]
    add_rows(conn, file_passages, rows)
    index = sql_driver(conn).index
    scope_id = place.scope_id
    shared_words = {
        "prev": mark_words(scope_id, index_words(place.name, telling=True)),
        "day": mark_words(scope_id, ()),
    }
    for key, passage in zip(keys, new_passages, strict=True):
        columns = {
            "body": mark_words(scope_id, passage.words),
            "speaker": mark_words(scope_id, index_words(passage.named)),
            **shared_words,
        }
        index.put_document(conn, FILES_INDEX, (key, scope_id), columns)


def docs(conn: Connection, after: int, limit: int) -> list[tuple[int, SearchDocument]]:
    """Return row keys and documents, in order, after a row key."""
    query = (
        select(file_passages, v.name, v.created_at)
        .join(file_versions, v.id == p.upload)
        .where(p.id > after)
    )
    return [
        (r.id, SearchDocument(r.scope_id, r.content, r.named, r.name, r.created_at))
        for r in conn.execute(query.order_by(p.id).limit(limit))
    ]


def search(
    conn: Connection, scope_id: int, query: str, limit: int, upload: int = 0
) -> list[dict[str, Any]]:
    """Return the passages that match a query, best first. upload: of one file, 0 for all."""
    first_place = 0
    last_place = MAX_KEY
    if upload:
        bounds = select(func.min(p.id), func.max(p.id)).where(p.upload == upload)
        first_place, last_place = (int(key or 0) for key in conn.execute(bounds).one())
        if not last_place:
            return []
    driver = sql_driver(conn)
    words = read_file_words(conn, scope_id, upload)
    corner = IndexScope(
        FILES_INDEX,
        scope_id,
        _select_candidates(driver),
        {"scope": scope_id},
        _neighbours,
        first_place,
        last_place,
        words.passages,
        words.may_hold,
    )
    similarity = SimilarityScores()
    ranked_rows = find_in_index(conn, corner, IndexQuery(query, limit), similarity)
    if not ranked_rows:
        return []
    best_rows = dict(list(ranked_rows.items())[:limit])
    return list_index_hits(conn, _select_hits(driver), best_rows, similarity)


@cache
def _select_candidates(driver: SqlDriver) -> Any:
    """Return the statement for candidates: those of the uploads that files show."""
    # + 0: by row key.
    return select(p.id, p.upload, literal(0.0), func.substr(p.content, 1, TEXT)).where(
        driver.is_listed(p.id),
        (p.upload + 0).in_(select(f.shown).where(f.scope_id == bindparam("scope"))),
    )


@cache
def _select_hits(driver: SqlDriver) -> Any:
    return (
        select(
            p.id,
            p.page,
            p.line_start,
            p.line_end,
            p.content,
            f.public_id.label("file"),
            f.name.label("name"),
        )
        .join(files, (f.scope_id == p.scope_id) & (f.shown == p.upload))
        .where(driver.is_listed(p.id))
    )


def _neighbours(conn: Connection, keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return the passages before and after each, in its file."""
    return {
        key: (previous_key, next_key)
        for key, previous_key, next_key in rows_of_keys(conn, BESIDE, keys)
    }


def read_lines(conn: Connection, upload: int, first_line: int, last_line: int) -> list[Any]:
    """Return the passages that hold lines of an upload, in order."""
    # A passage has no more lines than characters.
    query = select(file_passages).where(
        p.upload == upload,
        p.line_end.between(first_line, last_line + SIZE),
        p.line_start <= last_line,
    )
    return list(
        conn.execute(query.order_by(p.line_end, p.position).limit(last_line - first_line + 200))
    )


def read_places(conn: Connection, places: Sequence[tuple[int, int]]) -> list[PlacedPassage]:
    """Return passages by their uploads and places, in that order; none for one that is gone."""
    rows = [PlacedPassage(*row) for row in rows_of_pairs(conn, PLACED, places)]
    passages = {(row.upload, row.position): row for row in rows}
    return [passages[place] for place in places if place in passages]


def remove_next(conn: Connection, upload: int, limit: int) -> int:
    """Remove some passages of an upload with their documents; return how many."""
    keys = list(conn.execute(select(p.id).where(p.upload == upload).limit(limit)).scalars())
    sql_driver(conn).index.drop(conn, FILES_INDEX, keys)
    if keys:
        conn.execute(delete(file_passages).where(p.id.in_(keys)))
    return len(keys)
