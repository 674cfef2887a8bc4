"""Managed keys made at run time, as rows. Only a key's hash is here; a revoked row stays, so that its name and end can be told."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, literal, select, tuple_, update

from memory.errors import Conflict, NotFound
from memory.ids import new_id
from memory.stores.sql import schema as t
from memory.stores.sql.rows import execute

k = t.keys.c
COUNTED = select(func.count(), func.count(k.revoked_at)).select_from(
    t.keys
)  # built once: it is asked each second
Counts = tuple[
    int, int
]  # all rows, revoked rows: neither ever falls, so together they tell every change


@dataclass(frozen=True, slots=True)
class Stored:
    """One row. digest: sha256 of the key, in hex. spec: what it may do, as the JSON that the caller gave. Times in seconds since 1970."""

    id: str
    name: str
    tenant: str
    digest: str
    spec: str
    created_at: float
    revoked_at: float | None = None


def add(conn: Connection, name: str, tenant: str, digest: str, spec: str) -> Stored:
    """Raises Conflict when an unrevoked key has the name."""
    if conn.execute(select(k.id).where(k.name == name, k.revoked_at.is_(None))).first() is not None:
        raise Conflict(
            f"there is a key named {name!r} already: choose another name, or revoke that one first"
        )
    made = Stored(new_id("key"), name, tenant, digest, spec, time.time())
    conn.execute(
        insert(t.keys).values(
            id=made.id, name=name, hash=digest, tenant=tenant, spec=spec, created_at=made.created_at
        )
    )
    return made


def revoke(conn: Connection, ident: str) -> Stored:
    """Ends the key of this id, or the unrevoked one of this name; one that ended before stays as it is. Raises NotFound."""
    found = _rows(conn, select(t.keys).where(k.id == ident)) or _rows(
        conn, select(t.keys).where(k.name == ident, k.revoked_at.is_(None))
    )
    if not found:
        raise NotFound(f"there is no key of the id or name {ident[:64]!r}")
    conn.execute(
        update(t.keys)
        .where(k.id == found[0].id, k.revoked_at.is_(None))
        .values(revoked_at=time.time())
    )
    return _rows(conn, select(t.keys).where(k.id == found[0].id))[0]


def listed(
    conn: Connection, tenant: str | None, after: tuple[float, str] | None, limit: int
) -> list[Stored]:
    """Keys of a tenant (None: of all) in the order they were made, after this time and id."""
    query = select(t.keys).order_by(k.created_at, k.id).limit(limit)
    if tenant is not None:
        query = query.where(k.tenant == tenant)
    if after is not None:
        query = query.where(tuple_(k.created_at, k.id) > tuple_(*map(literal, after)))
    return _rows(conn, query)


def changed(conn: Connection, known: Counts | None) -> tuple[Counts, list[Stored]] | None:
    """The unrevoked keys, with the counts to ask by the next time; None when nothing changed since the counts `known`."""
    every, revoked = execute(conn, COUNTED, {}).one()
    if (every, revoked) == known:
        return None
    return (every, revoked), _rows(conn, select(t.keys).where(k.revoked_at.is_(None)))


def _rows(conn: Connection, query: Select[Any]) -> list[Stored]:
    return [_stored(row) for row in conn.execute(query)]


def _stored(row: Row[Any]) -> Stored:
    return Stored(row.id, row.name, row.tenant, row.hash, row.spec, row.created_at, row.revoked_at)
