"""The table of managed keys created at run time.

Only the hash of a key is stored. A revoked row stays, so that its name and end can be shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, literal, select, tuple_, update

from memory.errors import Conflict, NotFound
from memory.ids import new_id
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.statements import Query, execute

READ_SECONDS = 10.0

k = t.keys.c
# Built once, since it runs each second.
COUNTED = select(func.count(), func.count(k.revoked_at)).select_from(t.keys)
# All rows, revoked rows: neither ever decreases, so together they show every change.
Counts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One row.

    digest: SHA-256 of the key, in hex. spec: what the key may do, JSON from the caller. Times are
    Unix times.
    """

    id: str
    name: str
    tenant: str
    digest: str
    spec: str
    created_at: float
    revoked_at: float | None = None


async def create_key(db: Database, name: str, tenant: str, digest: str, spec: str) -> StoredKey:
    """Store a new key. Raises Conflict if a key with that name is not revoked."""
    return await db.write(lambda conn: _insert(conn, name, tenant, digest, spec))


async def revoke_key(db: Database, ident: str) -> StoredKey:
    """Revoke the key with this id, or the unrevoked one with this name.

    One that is revoked already stays as it is. Raises NotFound.
    """
    return await db.write(lambda conn: _revoke(conn, ident))


async def list_keys(
    db: Database, tenant: str | None, after: tuple[float, str] | None, limit: int
) -> list[StoredKey]:
    """List keys of a tenant (None: of all) in order of creation, after this time and id."""
    query = select(t.keys).order_by(k.created_at, k.id).limit(limit)
    if tenant is not None:
        query = query.where(k.tenant == tenant)
    if after is not None:
        query = query.where(tuple_(k.created_at, k.id) > tuple_(*map(literal, after)))
    return await db.read(lambda conn: _rows(conn, query), READ_SECONDS)


async def read_changes(
    db: Database, known_counts: Counts | None
) -> tuple[Counts, list[StoredKey]] | None:
    """Read the unrevoked keys, and the counts to pass next time.

    Returns None if nothing has changed since the counts `known_counts`.
    """
    counts = Query(COUNTED, {})
    if await db.read(counts, READ_SECONDS, single=True, of=NO_TURNS) == [known_counts]:
        return None
    return await db.read(_read_all, READ_SECONDS)


def _insert(conn: Connection, name: str, tenant: str, digest: str, spec: str) -> StoredKey:
    if conn.execute(select(k.id).where(k.name == name, k.revoked_at.is_(None))).first() is not None:
        raise Conflict(
            f"a key named {name!r} exists already: choose another name, or revoke that one first"
        )
    stored_key = StoredKey(new_id("key"), name, tenant, digest, spec, time.time())
    conn.execute(
        insert(t.keys).values(
            id=stored_key.id,
            name=name,
            hash=digest,
            tenant=tenant,
            spec=spec,
            created_at=stored_key.created_at,
        )
    )
    return stored_key


def _revoke(conn: Connection, ident: str) -> StoredKey:
    key_rows = _rows(conn, select(t.keys).where(k.id == ident)) or _rows(
        conn, select(t.keys).where(k.name == ident, k.revoked_at.is_(None))
    )
    if not key_rows:
        raise NotFound(f"there is no key with the id or name {ident[:64]!r}")
    conn.execute(
        update(t.keys)
        .where(k.id == key_rows[0].id, k.revoked_at.is_(None))
        .values(revoked_at=time.time())
    )
    return _rows(conn, select(t.keys).where(k.id == key_rows[0].id))[0]


def _read_all(conn: Connection) -> tuple[Counts, list[StoredKey]]:
    key_count, revoked = execute(conn, COUNTED, {}).one()
    return (key_count, revoked), _rows(conn, select(t.keys).where(k.revoked_at.is_(None)))


def _rows(conn: Connection, query: Select[Any]) -> list[StoredKey]:
    return [_from_row(row) for row in conn.execute(query)]


def _from_row(row: Row[Any]) -> StoredKey:
    return StoredKey(
        row.id, row.name, row.tenant, row.hash, row.spec, row.created_at, row.revoked_at
    )
