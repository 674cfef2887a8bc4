"""Long results of the operator's tools, kept whole for a while so that the model can read on."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select

from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import Query, put_row

# That are removed in one transaction: each may have megabytes.
EXPIRED_ROWS = 100
r = t.tool_results.c
CONTENT = select(r.content).where(r.id == bindparam("ident"), r.scope_id == bindparam("scope"))


def keep(conn: Connection, scope_id: int, ident: str, name: str, content: str) -> None:
    """Keep a result of a memory."""
    put_row(
        conn,
        t.tool_results,
        ("id",),
        id=ident,
        scope_id=scope_id,
        name=name,
        content=content,
        created_at=clock.now(),
    )


def read(scope_id: int, ident: str) -> Query:
    """Return the query for a result of this memory."""
    return Query(CONTENT, {"ident": ident, "scope": scope_id})


def expire(conn: Connection, before: float) -> int:
    """Remove so many results kept before `before`. Call again until it returns 0."""
    expired_ids = select(r.id).where(r.created_at < before).limit(EXPIRED_ROWS)
    return conn.execute(delete(t.tool_results).where(r.id.in_(expired_ids))).rowcount
