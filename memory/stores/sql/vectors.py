"""Vectors of passages: kept beside them in SQL, found missing by a join, read back for one scope at a time."""
from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from memory.stores.sql import schema as t
from memory.stores.sql.rows import put_row

p, v = t.passages.c, t.vectors.c


def missing(conn: Connection, scope_id: int, model: str, limit: int) -> list[tuple[int, str]]:
    """(passage, content) of those of the scope that have no vector of this model yet, oldest first."""
    query = (select(p.id, p.content).outerjoin(t.vectors, (v.passage == p.id) & (v.model == model))
             .where(p.scope_id == scope_id, v.passage.is_(None), p.deleted_at.is_(None)).order_by(p.id).limit(limit))
    return [(r.id, r.content) for r in conn.execute(query)]


def store(conn: Connection, scope_id: int, model: str, found: Mapping[int, bytes]) -> None:
    """Keeps vectors by passage. Those whose passage is gone by now are left out."""
    alive = set(conn.execute(select(p.id).where(p.scope_id == scope_id, p.id.in_(found))).scalars())
    for key, vector in found.items():
        if key in alive:
            put_row(conn, t.vectors, ("passage",), passage=key, scope_id=scope_id, model=model, vector=vector)


def extent(conn: Connection, scope_id: int, model: str) -> tuple[str, int]:
    """(the scope's tenant, how many vectors of this model it has)."""
    tenant = conn.execute(select(t.scopes.c.tenant).where(t.scopes.c.id == scope_id)).scalar() or ""
    return tenant, int(conn.execute(select(func.count()).select_from(t.vectors).where(v.scope_id == scope_id, v.model == model)).scalar() or 0)


def of_scope(conn: Connection, scope_id: int, model: str) -> dict[int, bytes]:
    """Passage to vector, of one scope."""
    return {r.passage: r.vector for r in conn.execute(select(v.passage, v.vector).where(v.scope_id == scope_id, v.model == model))}
