"""SQLite connections: readers and a writer with a thread each, and one on the event loop's thread.

A whole work runs on a connection's thread (aiosqlite's) in one hop.

- A hop to a thread and back costs more than a turn's statements (measured: 100 to 200 us against
  60), and while two threads run Python each waits for the other. So small work runs *at once*, on
  the event loop's thread, if nothing can delay it: no write while another connection writes (it is
  tried without waiting), none with `synchronous = FULL` (a commit would wait for the disk), and
  none for a while if such works took long on average (a disk that stalls). Checkpoints, which do
  wait for the disk, have a connection and a thread of their own: on the writer's thread the next
  write waited for the disk, and every small write for that one.
- SQLAlchemy works on a connection's own sqlite3 connection, synchronously. Transactions are begun
  and ended by the driver, reads deferred and writes immediate: SQLAlchemy's own begin and commit
  cost as much as three inserts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memory.stores.sql.engine.gathered_writes import WRITES_OPTION, GatheredWrites
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER
from memory.stores.sql.index.index_changes import CHANGES_OPTION, IndexChanges

T = TypeVar("T")
Work = Callable[[Connection], T]
READERS = 3
READING = "BEGIN"
WRITING = "BEGIN IMMEDIATE"
# seconds that works on the loop's thread may wait on average, the newest one's share in that, and
# seconds without
MAX_INLINE_SECONDS = 0.01
EWMA_WEIGHT = 0.02
INLINE_BACKOFF_SECONDS = 10.0
# page size of a new database: a turn touches a dozen pages, and a commit writes each
# whole
PAGE = 2048
# Works on the loop's thread between checkpoints: some 8 MB of log.
CHECKPOINT = 512
# A group of the writer's thread that took longer than this (a piece of a long work: 2 MB of log)
# counts as so many: writes that wait for the thread wait for a checkpoint of two of them at most.
LONG_GROUP_SECONDS = 0.004
LONG_GROUP_WORKS = 256
# Works beside one checkpoint, after which they wait for it.
BEHIND = 2048
# Pages in the log (128 MB) after which writes wait until it is begun anew, for two syncs of the
# disk: 20 to 60 ms. A shorter one is begun anew without that as soon as a checkpoint ends and
# nobody has written meanwhile.
LONG_LOG_PAGES = 65_536
# Ms that a write waits for another's.
BUSY_TIMEOUT_MS = 5000
# bytes of the database that connections keep at hand: on the loop's thread, and others by what they
# do
PAGES_HERE = 2 << 20
PAGES = {READING: 1 << 19, WRITING: 1 << 20}
# Bytes to which a thread's first write into a log that is begun anew cuts the file. Not on the
# loop's thread: the kernel takes 20 to 40 ms to give 100 MB back.
LOG_BYTES = f"journal_size_limit={LONG_LOG_PAGES * PAGE}"


class SqliteConnection:
    """One connection with SQLAlchemy over it, for one thread.

    begin: its BEGIN statement. options: what its works may ask it for.
    """

    def __init__(
        self, raw_connection: sqlite3.Connection, begin: str, options: Mapping[str, Any]
    ) -> None:
        self.raw = raw_connection
        self._begin = begin
        self._engine = create_engine(
            "sqlite://",
            creator=lambda: raw_connection,
            poolclass=StaticPool,
            hide_parameters=True,
            execution_options={
                **options,
                DRIVER_OPTION: DRIVER,
                WRITES_OPTION: GatheredWrites() if begin == WRITING else None,
            },
        )
        self._over: Connection | None = None

    def run(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Run the works in one transaction.

        Raises what they raised, and sqlite3.Error of the transaction itself.
        """
        # Held permanently: checking one out and in costs as much as three statements.
        if self._over is None:
            self._over = self._engine.connect()
        over = self._over
        self.raw.execute(self._begin)
        try:
            results = [work(over) for work in works]
            self.raw.execute("COMMIT")
        except BaseException:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
            self.release_lock()
            raise
        return results

    def release_lock(self) -> None:
        open_transaction = self._over
        self._over = None
        if open_transaction is not None:
            open_transaction.close()


class ConnectionThread:
    """A connection on a thread of aiosqlite."""

    def __init__(self, conn: aiosqlite.Connection, begin: str, options: Mapping[str, Any]) -> None:
        self._conn = conn
        self._lite = SqliteConnection(conn._conn, begin, options)
        # The writer's: a group of writes, or the end of a checkpoint.
        self.turn = asyncio.Lock()

    @property
    def raw(self) -> sqlite3.Connection:
        return self._lite.raw

    async def run(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Run the works in one transaction. Raises OSError for errors of the driver."""
        return list(await self.call(self._lite.run, works))

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on the connection's thread. Raises OSError for errors of the driver."""
        try:
            return await self._conn._execute(function, *args)  # type: ignore[no-untyped-call]
        except sqlite3.Error as e:
            raise OSError(f"{type(e).__name__}: {e}") from e

    def checkpoint(self) -> int:
        """Checkpoint the log while writes continue; return its pages."""
        return int(self._lite.raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])

    def checkpoint_rest(self) -> None:
        """Checkpoint the rest of the log while nobody writes, so that it restarts.

        Not possible while readers use it.
        """
        _set_pragmas(
            self._lite.raw,
            "busy_timeout=0",
            "wal_checkpoint(FULL)",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
        )

    async def close(self) -> None:
        await self.call(self._lite.release_lock)
        await self._conn.close()


def _set_pragmas(raw_connection: sqlite3.Connection, *pragmas: str) -> None:
    for pragma in pragmas:
        # A statement with a row left keeps its connection busy.
        raw_connection.execute(f"PRAGMA {pragma}").fetchall()


def _pages(size: int) -> str:
    return f"cache_size={-size // 1024}"


def open_connections(
    url: str, synchronous: str, options: Mapping[str, Any], server: tuple[bytes, int]
) -> SqliteThreads:
    """Return the connections for a URL. server: says nothing of a file."""
    return SqliteThreads(make_url(url).database or ":memory:", synchronous, options)


class SqliteThreads:
    """The connections of one file. synchronous: NORMAL or FULL. options: see `SqliteConnection`."""

    parallel = False
    lease: None = None

    def need_lease(self) -> None:
        """Do nothing: the data folder is locked instead."""

    def __init__(self, path: str, synchronous: str, options: Mapping[str, Any]) -> None:
        self._path = path
        self._synchronous = synchronous
        self._options = options
        self._open_connections: list[ConnectionThread] = []
        self._readers: asyncio.LifoQueue[ConnectionThread] = asyncio.LifoQueue()
        self._writer: ConnectionThread | None = None
        self._checkpointer: ConnectionThread | None = None
        # One connection, for reads and for writes.
        self._own_connection: tuple[SqliteConnection, SqliteConnection] | None = None
        self._rests_until = self._pace = 0.0
        self._since_checkpoint = 0
        self.checkpoint: asyncio.Task[None] | None = None
        self.pause: asyncio.Future[None] | None = None
        # Of `at_once`.
        self.index_changes = IndexChanges()

    async def open(self) -> None:
        """Connect; safe to repeat after a failure. Raises OSError."""
        await self.close()
        if self._path != ":memory:":
            # readable by their owner only; SQLite gives its other files the same mode
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL, 0o600))
        try:
            self._writer = await self._connect(WRITING)
            for _ in range(READERS):
                self._readers.put_nowait(await self._connect(READING))
            if self._synchronous == "NORMAL" and self._path != ":memory:":
                raw_connection = sqlite3.connect(
                    self._path, isolation_level=None, timeout=0, cached_statements=256
                )
                _set_pragmas(
                    raw_connection,
                    "synchronous=NORMAL",
                    "wal_autocheckpoint=0",
                    _pages(PAGES_HERE),
                    "temp_store=MEMORY",
                )
                # a checkpoint within a commit would triple what everybody waits for it
                await self._writer.call(_set_pragmas, self._writer.raw, "wal_autocheckpoint=0")
                self._checkpointer = await self._connect(WRITING)
                self._own_connection = (
                    SqliteConnection(raw_connection, READING, self._options),
                    SqliteConnection(
                        raw_connection,
                        WRITING,
                        {**self._options, CHANGES_OPTION: self.index_changes},
                    ),
                )
        except sqlite3.Error as e:
            await self.close()
            raise OSError(f"{type(e).__name__}: {e}") from e
        except OSError:
            await self.close()
            raise

    async def _connect(self, begin: str) -> ConnectionThread:
        conn = aiosqlite.connect(self._path, isolation_level=None, cached_statements=256)
        await conn
        self._open_connections.append(thread := ConnectionThread(conn, begin, self._options))
        await thread.call(
            _set_pragmas,
            conn._conn,
            f"page_size={PAGE}",
            "journal_mode=WAL",
            f"synchronous={self._synchronous}",
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            _pages(PAGES[begin]),
            LOG_BYTES,
            "temp_store=MEMORY",
        )
        return thread

    async def fill(self) -> None:
        """Do nothing: the file's threads are there."""

    async def read(self, work: Work[T], *, single: bool = False) -> T:
        thread = await self._readers.get()
        try:
            read_result: T = (await thread.run([work]))[0]
            return read_result
        finally:
            self._readers.put_nowait(thread)

    async def write(self, works: Sequence[Work[Any]]) -> list[Any]:
        if self._writer is None:
            raise OSError("the database is not open")
        begun_at = time.monotonic()
        async with self._writer.turn:
            results = await self._writer.run(works)
        if self._own_connection is not None:
            is_long = time.monotonic() - begun_at > LONG_GROUP_SECONDS
            self._count(LONG_GROUP_WORKS if is_long else len(works))
        return results

    async def write_one(
        self,
        work: Work[T],
        lock: object,
        *,
        once: bool,
        is_wanted: Callable[[], bool],
        shortcut: object,
    ) -> T:
        """Run one write; there is one writer, so nothing is locked."""
        write_result: T = (await self.write([work]))[0]
        return write_result

    def at_once(self, works: Sequence[Work[Any]], *, reading: bool = False) -> list[Any] | None:
        """Run small works on this thread, in one transaction; None if they must wait.

        Raises what a work raised.
        """
        connection = self._own_connection
        begun_at = time.monotonic()
        if connection is None or begun_at < self._rests_until:
            return None
        cpu_begun_at = time.thread_time()
        results: list[Any] | None = None
        try:
            results = connection[not reading].run(works)
        except (sqlite3.Error, SQLAlchemyError):
            # another connection writes, or the work fails, which it will again when queued
            return None
        finally:
            now = time.monotonic()
            # A slow disk is a reason to use the writer's thread. Work is none: it costs as much
            # there, and every write there makes what is kept of the index be read again.
            waited = now - begun_at - (time.thread_time() - cpu_begun_at)
            self._pace += EWMA_WEIGHT * (waited - self._pace)
            if self._pace > MAX_INLINE_SECONDS:
                self._rests_until = now + INLINE_BACKOFF_SECONDS
                self._pace = 0.0
            if not reading:
                self.index_changes.settle(committed=results is not None)
        if not reading:
            self._since_checkpoint += len(works)
            if self._since_checkpoint >= CHECKPOINT:
                self._count(0)
        return results

    def _count(self, works: int) -> None:
        """Count writes; after so many of them the log is brought into the database."""
        self._since_checkpoint += works
        if self.checkpoint is None or self.checkpoint.done():
            if self._since_checkpoint >= CHECKPOINT:
                self._since_checkpoint = 0
                self.checkpoint = asyncio.create_task(
                    self._write_checkpoints(), name="memory-checkpoint"
                )
        elif self._since_checkpoint >= BEHIND and self.pause is None:
            self.pause = asyncio.get_running_loop().create_future()

    async def _write_checkpoints(self) -> None:
        """Checkpoint the log, and make writes wait if it falls behind.

        Continuous writes would never let a checkpoint finish ("checkpoint starvation",
        sqlite.org/wal.html): the log would grow without bound, and a growing file is slower to
        write. So writes wait for the end of a long checkpoint, when little is left to do, and for
        one that they outrun.
        """
        try:
            thread = self._checkpointer
            writer = self._writer
            if thread is None or writer is None:
                return
            if await thread.call(thread.checkpoint) < LONG_LOG_PAGES and self.pause is None:
                return
            # What was written during the first: no write waits for it yet.
            await thread.call(thread.checkpoint)
            self.pause = self.pause or asyncio.get_running_loop().create_future()
            async with writer.turn:
                await thread.call(thread.checkpoint_rest)
        finally:
            if (pause := self.pause) is not None:
                self.pause = None
                pause.set_result(None)

    def version(self) -> int | None:
        """Return a number that only changes if somebody wrote other than by `at_once`.

        Also in other processes. None if that is unknown.
        """
        if self._own_connection is None:
            return None
        try:
            return int(self._own_connection[0].raw.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return None

    async def close(self) -> None:
        if self.checkpoint is not None:
            await asyncio.wait([self.checkpoint])
        connection = self._own_connection
        self._own_connection = None
        if connection is not None:
            for lite in connection:
                lite.release_lock()
            connection[0].raw.close()
        for thread in self._open_connections:
            await thread.close()
        self._open_connections.clear()
        self._readers = asyncio.LifoQueue()
        self._writer = self._checkpointer = None
