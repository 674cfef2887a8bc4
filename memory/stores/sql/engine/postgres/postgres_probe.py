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

    async def work(raw_connection: asyncpg.Connection) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in await raw_connection.fetch(sql, *values)]
        except asyncpg.UndefinedTableError:
            return []

    return _ask(url, work)


def look(url: str) -> tuple[str, str | None]:
    """Return the server's version and the revision of the tables, None if there are none.

    Raises OSError for a server that cannot be reached or used, and StoreUnavailable.
    """

    async def work(raw_connection: asyncpg.Connection) -> tuple[str, str | None]:
        await check_server(raw_connection)
        server_version = raw_connection.get_server_version()
        has_tables = await raw_connection.fetchval(
            "SELECT to_regclass('alembic_version') IS NOT NULL"
        )
        revision = None
        if has_tables:
            revision = await raw_connection.fetchval("SELECT version_num FROM alembic_version")
        return f"{server_version.major}.{server_version.minor}", revision

    return _ask(url, work)


def why_not_readable(url: str, revision: str) -> str:
    """Return why this version cannot serve a database of that revision; empty if it can.

    Raises OSError if the database cannot be read.
    """
    readable_rows = query(url, "SELECT value FROM meta WHERE name = 'readable_by'")
    return why_unreadable(revision, readable_rows[0][0] if readable_rows else None)


def _ask(url: str, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    """Run work on a connection of its own, in a thread, since the caller may have a loop."""
    results: list[T] = []
    failures: list[BaseException] = []

    async def ask() -> T:
        async with asyncio.timeout(SECONDS):
            raw_connection = await connect(**driver_arguments(url))
            try:
                return await work(raw_connection)
            finally:
                await raw_connection.close()

    def run() -> None:
        try:
            results.append(asyncio.run(ask()))
        except BaseException as e:
            # Raised below, in the caller's thread.
            failures.append(e)

    thread = threading.Thread(target=run, name="postgres-probe")
    thread.start()
    thread.join()
    if failures:
        if isinstance(failures[0], asyncpg.PostgresError | asyncpg.InterfaceError | TimeoutError):
            raise OSError(f"{type(failures[0]).__name__}: {failures[0]}") from failures[0]
        raise failures[0]
    return results[0]
