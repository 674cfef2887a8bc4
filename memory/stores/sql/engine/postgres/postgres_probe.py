"""Reads a Postgres database before a store is opened, for the start and for commands.

Changes nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from memory.stores.sql.engine.postgres.postgres_checks import check_server
from memory.stores.sql.engine.postgres.postgres_hosts import connect
from memory.stores.sql.engine.postgres.postgres_statements import driver_arguments
from memory.stores.sql.engine.preparation import why_unreadable

T = TypeVar("T")
SECONDS = 5.0


def query(url: str, sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query; none if its table does not exist.

    Its parameters are `?`. Raises OSError if the database cannot be read.
    """
    for i in range(len(values)):
        sql = sql.replace("?", f"${i + 1}", 1)

    async def work(raw: asyncpg.Connection) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in await raw.fetch(sql, *values)]
        except asyncpg.UndefinedTableError:
            return []

    return _ask(url, work)


def look(url: str) -> tuple[str, str | None]:
    """Return the server's version and the revision of the tables, None if there are none.

    Raises OSError for a server that cannot be reached or used, and StoreUnavailable.
    """

    async def work(raw: asyncpg.Connection) -> tuple[str, str | None]:
        await check_server(raw)
        found = raw.get_server_version()
        made = await raw.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL")
        revision = await raw.fetchval("SELECT version_num FROM alembic_version") if made else None
        return f"{found.major}.{found.minor}", revision

    return _ask(url, work)


def why_not_readable(url: str, revision: str) -> str:
    """Return why this version cannot serve a database of that revision; empty if it can.

    Raises OSError if the database cannot be read.
    """
    oldest = query(url, "SELECT value FROM meta WHERE name = 'readable_by'")
    return why_unreadable(revision, oldest[0][0] if oldest else None)


def _ask(url: str, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    """Run work on a connection of its own, in a thread, since the caller may have a loop."""
    found: list[T] = []
    failed: list[BaseException] = []

    async def ask() -> T:
        async with asyncio.timeout(SECONDS):
            raw = await connect(**driver_arguments(url))
            try:
                return await work(raw)
            finally:
                await raw.close()

    def run() -> None:
        try:
            found.append(asyncio.run(ask()))
        except BaseException as e:
            failed.append(e)  # raised below, in the caller's thread

    thread = threading.Thread(target=run, name="postgres-probe")
    thread.start()
    thread.join()
    if failed:
        if isinstance(failed[0], asyncpg.PostgresError | asyncpg.InterfaceError | TimeoutError):
            raise OSError(f"{type(failed[0]).__name__}: {failed[0]}") from failed[0]
        raise failed[0]
    return found[0]
