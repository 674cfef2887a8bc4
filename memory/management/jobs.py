"""Background jobs from outside: list them by state, and retry those that gave up."""

from __future__ import annotations

from typing import Any

from memory.management.reading import read
from memory.service import Memory
from memory.stores.sql.rows import job_admin
from memory.stores.sql.rows.scopes import VisibleScopes

STATES = job_admin.STATES


async def list_jobs(
    memory: Memory, reach: VisibleScopes, state: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List jobs of a state, newest first, before a row key. Raises StoreUnavailable."""
    return await read(memory, lambda conn: job_admin.page(conn, reach, state, before, limit))


async def retry_job(memory: Memory, reach: VisibleScopes, ident: int) -> None:
    """Reset the attempts of a dead job. Raises NotFound, StoreUnavailable."""
    await memory.db.write(lambda conn: job_admin.retry(conn, reach, ident))
