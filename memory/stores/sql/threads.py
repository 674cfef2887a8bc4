"""SQLite connections, each with a thread of its own (aiosqlite's), on which a whole work runs in one hop.

SQLAlchemy works on the thread's own sqlite3 connection, synchronously; aiosqlite brings the thread and its queue. Reads are
deferred transactions, writes immediate ones.
"""
from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import StaticPool

T = TypeVar("T")
Work = Callable[[Connection], T]
READERS = 3


class SqliteThreads:
    """path: the database file. synchronous: NORMAL or FULL."""

    def __init__(self, path: str, synchronous: str) -> None:
        self._path, self._synchronous = path, synchronous
        self._all: list[Thread] = []
        self._readers: asyncio.LifoQueue[Thread] = asyncio.LifoQueue()
        self._writer: Thread | None = None

    async def open(self) -> None:
        """Connects; safe to call again after a failure. Raises OSError."""
        await self.close()
        try:
            self._writer = await self._connected("BEGIN IMMEDIATE")
            for _ in range(READERS):
                self._readers.put_nowait(await self._connected("BEGIN"))
        except sqlite3.Error as e:
            await self.close()
            raise OSError(f"{type(e).__name__}: {e}") from e

    async def _connected(self, begin: str) -> Thread:
        conn = aiosqlite.connect(self._path, isolation_level=None)
        await conn
        self._all.append(thread := Thread(conn, begin))
        for pragma in ("journal_mode=WAL", f"synchronous={self._synchronous}", "busy_timeout=5000", "temp_store=MEMORY"):
            await conn.execute(f"PRAGMA {pragma}")
        return thread

    async def read(self, work: Work[T]) -> T:
        thread = await self._readers.get()
        try:
            found: T = (await thread.run([work]))[0]
            return found
        finally:
            self._readers.put_nowait(thread)

    async def write(self, works: Sequence[Work[Any]]) -> list[Any]:
        if self._writer is None:
            raise OSError("the database is not open")
        return await self._writer.run(works)

    async def close(self) -> None:
        for thread in self._all:
            await thread.close()
        self._all.clear()
        self._readers = asyncio.LifoQueue()
        self._writer = None


class Thread:
    """One connection and SQLAlchemy over it."""

    def __init__(self, conn: aiosqlite.Connection, begin: str) -> None:
        self._conn = conn
        self._engine = create_engine("sqlite://", creator=lambda: conn._conn, poolclass=StaticPool, hide_parameters=True)
        self._held: Connection | None = None

        @event.listens_for(self._engine, "begin")
        def _begun(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

    async def run(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Runs the works in one transaction, on the connection's thread. Raises OSError for what the driver itself raised."""
        try:
            out: list[Any] = await self._conn._execute(self._transaction, works)  # type: ignore[no-untyped-call]
        except sqlite3.Error as e:
            raise OSError(f"{type(e).__name__}: {e}") from e
        return out

    async def close(self) -> None:
        await self._conn._execute(self._let_go)  # type: ignore[no-untyped-call]
        await self._conn.close()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _transaction(self, works: Sequence[Work[Any]]) -> list[Any]:
        if self._held is None:  # held for good: to check one out and in again costs as much as three statements
            self._held = self._engine.connect()
        try:
            with self._held.begin():
                return [work(self._held) for work in works]
        except BaseException:
            self._let_go()
            raise
