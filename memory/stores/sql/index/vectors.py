"""Vectors of passages and messages, in SQL: store, find missing ones, read a scope's.

A text that the embedder refused has an empty vector of a model name of its own: it is not missing,
and not among the scope's vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, delete, func, select

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute, put_row
from memory.stores.sql.rows.jobs import QueuedJob

# Prefix of a model's name.
REFUSED = "refused by "
# Embedded characters of a text, within the limit of small models.
MAX_TEXT_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class VectorKind:
    """What has vectors.

    key: the column of `vectors` with the row's key. worth: which rows are embedded.
    """

    name: str
    rows: Table
    vectors: Table
    key: Any
    worth: ColumnElement[bool]


PASSAGES = VectorKind(
    "passages", t.passages, t.vectors, t.vectors.c.passage, t.passages.c.deleted_at.is_(None)
)
MESSAGES = VectorKind(
    "messages",
    t.messages,
    t.message_vectors,
    t.message_vectors.c.message,
    and_(t.messages.c.role.in_(("user", "assistant")), func.trim(t.messages.c.content) != ""),
)
KINDS = (PASSAGES, MESSAGES)
ALL = {
    k.name: select(k.key, k.vectors.c.vector).where(
        k.vectors.c.scope_id == bindparam("scope"), k.vectors.c.model == bindparam("model")
    )
    for k in KINDS
}


@dataclass(frozen=True, slots=True)
class VectorSet:
    """The vectors of one kind in one scope by one model; only these are compared."""

    kind: VectorKind
    scope_id: int
    model: str

    @property
    def mine(self) -> ColumnElement[bool]:
        vector_columns = self.kind.vectors.c
        return and_(vector_columns.scope_id == self.scope_id, vector_columns.model == self.model)

    @property
    def refused(self) -> str:
        """The model name of texts that this model refused."""
        return f"{REFUSED}{self.model}"


def job_of(scope_id: int, *, whole: bool = False) -> QueuedJob:
    """Return the job that makes a scope's missing vectors.

    One waits at a time, so that new rows are embedded together. whole: check every row, and index a
    large scope again.
    """
    return QueuedJob(
        "embed",
        {"whole": True} if whole else {},
        scope_id,
        dedupe=f"embed{'-whole' if whole else ''}-{scope_id}",
    )


def find_missing(
    conn: Connection, part: VectorSet, after: int, limit: int
) -> list[tuple[int, str]]:
    """Return (row key, text) of rows without a vector of this model, after a row key."""
    kind = part.kind
    rows = part.kind.rows.c
    # + 0: by scope, not by walking through everyone's rows in the order of their keys.
    query = (
        select(rows.id, func.substr(rows.content, 1, MAX_TEXT_CHARACTERS))
        .outerjoin(
            kind.vectors,
            and_(kind.key == rows.id, kind.vectors.c.model.in_((part.model, part.refused))),
        )
        .where(rows.scope_id == part.scope_id, rows.id + 0 > after, kind.key.is_(None), kind.worth)
        .order_by(rows.id + 0)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in conn.execute(query)]


def newest(conn: Connection, part: VectorSet) -> int:
    """Return the last row with a vector; 0 if there is none."""
    return int(conn.execute(select(func.max(part.kind.key)).where(part.mine)).scalar() or 0)


def still_there(conn: Connection, part: VectorSet, keys: Collection[int]) -> set[int]:
    """Return which of these rows there are; none of a scope that was erased.

    An erasure removes the scope at once, and its rows in pieces.
    """
    rows = part.kind.rows.c
    scopes = t.scopes.c
    scope = select(scopes.id).where(scopes.id == part.scope_id).exists()
    query = select(rows.id).where(rows.scope_id == part.scope_id, rows.id.in_(keys), scope)
    return set(conn.execute(query).scalars())


def store(conn: Connection, part: VectorSet, vectors_by_key: Mapping[int, bytes]) -> set[int]:
    """Store vectors by row key, skipping rows that are gone. Returns those that are not."""
    present = still_there(conn, part, vectors_by_key)
    for key in sorted(present):
        put_row(
            conn,
            part.kind.vectors,
            (part.kind.key.name,),
            **{part.kind.key.name: key},
            scope_id=part.scope_id,
            model=part.model,
            vector=vectors_by_key[key],
        )
    return present


def pass_over(conn: Connection, part: VectorSet, key: int) -> None:
    """Record that the model refused the text of a row."""
    store(conn, replace(part, model=part.refused), {key: b""})


def ask_again(conn: Connection, max_texts: int = 500) -> int:
    """Make refused texts of all scopes missing again, so many of each kind.

    Returns their number.
    """
    removed_count = 0
    # Looked up in an index, not in the vectors themselves.
    for kind in KINDS:
        refused_keys = (
            select(kind.key).where(kind.vectors.c.model.startswith(REFUSED)).limit(max_texts)
        )
        removed_count += conn.execute(
            delete(kind.vectors).where(kind.key.in_(refused_keys))
        ).rowcount
    return removed_count


def drop(conn: Connection, kind: VectorKind, keys: Collection[int]) -> dict[int, list[int]]:
    """Remove the vectors of rows; return the keys of those that had one, by scope."""
    keys_by_scope: dict[int, list[int]] = {}
    for row in conn.execute(select(kind.key, kind.vectors.c.scope_id).where(kind.key.in_(keys))):
        keys_by_scope.setdefault(row[1], []).append(row[0])
    if keys_by_scope:
        conn.execute(delete(kind.vectors).where(kind.key.in_(keys)))
    return keys_by_scope


def owner(conn: Connection, scope_id: int) -> tuple[str, bool] | None:
    """Return (the scope's tenant, whether it names a user); None if it is gone."""
    row = conn.execute(
        select(t.scopes.c.tenant, t.scopes.c.user).where(t.scopes.c.id == scope_id)
    ).first()
    if row:
        return (row.tenant, row.user is not None)
    return None


def count(conn: Connection, part: VectorSet, max_vectors: int, row_filter: Any = None) -> int:
    """Return the number of vectors, counted up to `max_vectors`.

    row_filter: query of row keys to count, None for all.
    """
    query = select(part.kind.key).where(_within(part, row_filter)).limit(max_vectors).subquery()
    return int(conn.execute(select(func.count()).select_from(query)).scalar() or 0)


def of_scope(conn: Connection, part: VectorSet, row_filter: Any = None) -> dict[int, bytes]:
    """Return vectors by row key. row_filter: query of row keys, None for all."""
    if row_filter is None:
        rows = execute(conn, ALL[part.kind.name], {"scope": part.scope_id, "model": part.model})
    else:
        rows = conn.execute(
            select(part.kind.key, part.kind.vectors.c.vector).where(_within(part, row_filter))
        )
    return {row[0]: row[1] for row in rows}


def page(conn: Connection, part: VectorSet, after: int, limit: int) -> dict[int, bytes]:
    """Return vectors by row key, in order, after a row key."""
    key = part.kind.key
    return {
        row[0]: row[1]
        for row in conn.execute(
            select(key, part.kind.vectors.c.vector)
            .where(part.mine, key > after)
            .order_by(key)
            .limit(limit)
        )
    }


def count_made(conn: Connection, model: str) -> int:
    """Return how many texts of all scopes have a vector of this model."""
    return sum(
        int(
            conn.execute(
                select(func.count()).select_from(k.vectors).where(k.vectors.c.model == model)
            ).scalar()
            or 0
        )
        for k in KINDS
    )


def count_refused(conn: Connection, model: str) -> int:
    """Return how many texts of all scopes this model refused."""
    return count_made(conn, f"{REFUSED}{model}")


def count_wanted(conn: Connection) -> int:
    """Return how many texts should have a vector.

    These are all passages, and the messages of named users and their assistants.
    """
    passage_count = select(func.count()).select_from(t.passages).where(PASSAGES.worth)
    named_scopes = select(t.scopes.c.id).where(t.scopes.c.user.is_not(None))
    message_count = (
        select(func.count())
        .select_from(t.messages)
        .where(MESSAGES.worth, t.messages.c.scope_id.in_(named_scopes))
    )
    return int(conn.execute(passage_count).scalar() or 0) + int(
        conn.execute(message_count).scalar() or 0
    )


def _within(part: VectorSet, row_filter: Any) -> ColumnElement[bool]:
    if row_filter is None:
        return part.mine
    return and_(part.mine, part.kind.key.in_(row_filter))
