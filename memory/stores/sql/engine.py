"""The database: many readers, one writer with group commit. Work is a function of a SQLAlchemy connection.

- A write is a function that may run twice: writes that wait together share one transaction, and when one of them fails
  the others are run again, each in a transaction of its own.
- A read has a deadline. Past it the caller goes on without; the query is left to end by itself, since cancelling it
  would cost its connection.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, event, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from memory.errors import StoreUnavailable
from memory.stores.sql import schema

T = TypeVar("T")
Work = Callable[[Connection], T]
GROUP = 64  # writes that share a commit


class Database:
    """Opens on `open()`. url: `sqlite+aiosqlite:///file.db` or `postgresql+asyncpg://...`. synchronous: SQLite's, NORMAL or FULL."""

    def __init__(self, url: str, synchronous: str = "NORMAL") -> None:
        if synchronous not in ("NORMAL", "FULL"):
            raise ValueError(f"storage.synchronous is {synchronous!r}: use NORMAL or FULL")
        self.url = url
        self._engine: AsyncEngine = create_async_engine(url, pool_size=4, max_overflow=4) if ":memory:" not in url else create_async_engine(url)
        if self._engine.dialect.name == "sqlite":
            _tune(self._engine, synchronous)
        self._queue: asyncio.Queue[tuple[Work[Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Creates the tables of an empty database, refuses one of another version, starts the writer."""
        try:
            async with self._engine.connect() as conn, conn.begin():
                await conn.run_sync(_prepare)
        except (SQLAlchemyError, OSError) as e:
            raise StoreUnavailable(f"the database {self._engine.url.render_as_string()} cannot be opened: {e}") from e
        self._writer = asyncio.create_task(self._write_on(), name="memory-writer")

    async def close(self) -> None:
        """Finishes the writes that are waiting, then closes every connection."""
        if self._writer is not None:
            await self._queue.join()
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        if self._reads:
            await asyncio.wait(self._reads, timeout=2)
        await self._engine.dispose()

    async def read(self, work: Work[T], deadline: float | None = None) -> T:
        """Runs `work` in a read transaction. Raises StoreUnavailable past `deadline` seconds or when the database fails."""
        task = asyncio.ensure_future(self._read(work))
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)
        done, _ = await asyncio.wait({task}, timeout=deadline)
        if not done:
            task.add_done_callback(lambda t: t.cancelled() or t.exception())
            raise StoreUnavailable(f"the store did not answer within {deadline} s")
        return task.result()

    async def _read(self, work: Work[T]) -> T:
        try:
            async with self._engine.connect() as conn:
                return await conn.run_sync(work)
        except (SQLAlchemyError, OSError) as e:
            raise StoreUnavailable(f"the store failed: {type(e).__name__}") from e

    async def write(self, work: Work[T]) -> T:
        """Runs `work` in a write transaction; it is durable when this returns. Raises what `work` raised, or StoreUnavailable."""
        if self._writer is None or self._writer.done():
            raise StoreUnavailable("the store is not open")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((work, done))
        return await done

    async def _write_on(self) -> None:
        while True:
            group = [await self._queue.get()]
            while len(group) < GROUP and not self._queue.empty():
                group.append(self._queue.get_nowait())
            try:
                await self._commit(group)
            finally:
                for _ in group:
                    self._queue.task_done()

    async def _commit(self, group: list[tuple[Work[Any], asyncio.Future[Any]]]) -> None:
        try:
            async with self._engine.connect() as conn:
                await conn.execution_options(write=True)
                await self._together(conn, group)
        except (SQLAlchemyError, OSError) as e:
            for _, done in group:
                if not done.done():
                    done.set_exception(StoreUnavailable(f"the store failed: {type(e).__name__}"))

    async def _together(self, conn: AsyncConnection, group: list[tuple[Work[Any], asyncio.Future[Any]]]) -> None:
        try:
            async with conn.begin():
                results = await conn.run_sync(lambda c: [work(c) for work, _ in group])
        except Exception as e:
            if len(group) == 1:
                if not group[0][1].done():
                    group[0][1].set_exception(_told(e))
                return
            for one in group:
                await self._together(conn, [one])
            return
        for (_, done), result in zip(group, results, strict=True):
            if not done.done():
                done.set_result(result)


def _told(error: Exception) -> Exception:
    return StoreUnavailable(f"the store failed: {type(error).__name__}") if isinstance(error, SQLAlchemyError | OSError) else error


def _prepare(conn: Connection) -> None:
    names = set(inspect(conn).get_table_names())
    if "scopes" not in names:
        schema.metadata.create_all(conn)
        conn.exec_driver_sql("CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        conn.exec_driver_sql(f"INSERT INTO alembic_version (version_num) VALUES ('{schema.REVISION}')")
        return
    found = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() if "alembic_version" in names else None
    if found != schema.REVISION:
        raise StoreUnavailable(f"the database is at version {found}, this Memgate needs {schema.REVISION}: run `memgate db upgrade`")


def _tune(engine: AsyncEngine, synchronous: str) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are ours to begin: reads deferred, writes immediate
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "busy_timeout=5000", "foreign_keys=OFF", "temp_store=MEMORY"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begun(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.get_execution_options().get("write") else "BEGIN")
