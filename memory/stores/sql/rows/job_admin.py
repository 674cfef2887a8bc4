"""Jobs for operators: list by state, retry.

The content of a job is never shown: it may contain a user's messages.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from memory.errors import NotFound
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows.scopes import VisibleScopes

j = t.jobs.c
s = t.scopes.c
STATES = ("ready", "running", "waiting", "dead")


def page(
    conn: Connection, reach: VisibleScopes, state: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return jobs, newest first, before a row key."""
    query = (
        select(j.id, j.kind, j.state, j.attempts, j.error, j.created_at, j.run_at, s.tenant, s.user)
        .select_from(t.jobs.outerjoin(t.scopes, s.id == j.scope_id))
        .where(j.state == state, *reach.conditions())
        .order_by(j.id.desc())
        .limit(limit)
    )
    return [
        dict(r._mapping)
        for r in conn.execute(query.where(j.id < before) if before is not None else query)
    ]


def retry(conn: Connection, reach: VisibleScopes, ident: int) -> None:
    """Reset the attempts of a dead job. Raises NotFound."""
    dead_job = (
        select(j.id)
        .select_from(t.jobs.outerjoin(t.scopes, s.id == j.scope_id))
        .where(j.id == ident, j.state == "dead", *reach.conditions())
    )
    job_key = conn.execute(dead_job).scalar()
    if job_key is None:
        raise NotFound(f"There is no dead job {ident} here.")
    conn.execute(
        update(t.jobs)
        .where(j.id == job_key)
        .values(state="ready", attempts=0, error=None, run_at=clock.now())
    )
