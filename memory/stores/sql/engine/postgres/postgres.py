"""Postgres connections: held, each used by one read or write at a time.

- A work is a synchronous function, as on SQLite: it runs in a greenlet, which waits where the
  driver does. Transactions are begun and ended through the driver.
- A read is one moment (`REPEATABLE READ`). A write locks its owner first (see `write_lock`), so
  writes of different owners run side by side.
- A write that the server aborted for another's sake, or whose connection was lost, is repeated. If
  the connection is lost at the commit, the server is asked whether it happened.
- No state is kept in a session: a pooler in transaction mode may stand between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import asyncpg
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from memory.stores.sql.engine.postgres.postgres_checks import (
    NO_STATEMENTS,
    check_server,
    keeps_statements,
)
from memory.stores.sql.engine.postgres.postgres_driver import DRIVER
from memory.stores.sql.engine.postgres.postgres_hosts import connect
from memory.stores.sql.engine.postgres.postgres_lease import (
    SlotLease,
    new_incarnation,
    session_name,
)
from memory.stores.sql.engine.postgres.postgres_statements import (
    cache_arguments,
    driver_arguments,
    fetch_query,
    learn_arrays,
    sqlstate_of,
)
from memory.stores.sql.engine.shortcut import Shortcut, Sql
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.statements import Query, all_storable, storable
from memory.stores.sql.engine.waiting import tell_of_connection
from memory.stores.sql.engine.write_lock import (
    EVERY_WRITE,
    EVERYTHING,
    NOTHING,
    Withdrawn,
    WriteLock,
)
from memory.stores.sql.index.index_changes import IndexChanges

log = logging.getLogger("mnemogate")
T = TypeVar("T")
Work = Callable[[Connection], T]
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0  # more than any limit below: who says nothing for so long is lost
STATEMENTS = 512  # prepared on each connection; there are some three hundred
# Of each transaction, since a pooler may give the session to another: ms.
LIMITS = (
    "SET LOCAL statement_timeout = 10000; SET LOCAL lock_timeout = 2000; "
    "SET LOCAL idle_in_transaction_session_timeout = 10000; SET LOCAL jit = off"
)
READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {LIMITS}"
WRITE = f"BEGIN; {LIMITS}"
# After a crash, or at a standby that was promoted, another transaction may get the same number.
SERVER = (
    "extract(epoch FROM pg_postmaster_start_time()) || ' ' || "
    "coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text, '')"
)
TRANSACTION = f"pg_current_xact_id() || ' ' || {SERVER}"
WAS_COMMITTED = f"SELECT pg_xact_status($1::text::xid8), {SERVER}"
LOCKS = {
    "everything": f"SELECT {TRANSACTION}, pg_advisory_xact_lock({EVERY_WRITE})",
    "nothing": f"SELECT {TRANSACTION}",
    "owner": f"SELECT {TRANSACTION}, pg_advisory_xact_lock_shared({EVERY_WRITE}), "
    "pg_advisory_xact_lock(hashtextextended($1, 0))",
    "scope": f"SELECT {TRANSACTION}, pg_advisory_xact_lock_shared({EVERY_WRITE}), "
    '(SELECT pg_advisory_xact_lock(hashtextextended(CASE WHEN "user" IS NULL THEN '
    "'scope ' || id ELSE char_length(tenant) || ':' || tenant || ':' || \"user\" END, 0)) "
    "FROM scopes WHERE id = $1)",
}
TRIES = 4
PAUSE_SECONDS = 0.05  # before the second try, twice as long before each later one
# Aborted for another's sake, or by a server that stops or is not the primary any more.
REPEATED = {"40001", "40P01", "55P03", "23505", "57P01", "57P02", "57P03", "25006", "0A000"}
LOST = "08"  # class of lost connections
FAILURES = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
TAKE_SECONDS = 10.0  # that a work waits for a connection


class PostgresConnection:
    """One connection with SQLAlchemy over it."""

    def __init__(self, over: AsyncConnection, raw_connection: asyncpg.Connection) -> None:
        self.over = over
        self.raw = raw_connection

    async def read(self, work: Work[Any], *, single: bool) -> Any:
        """Run a read, in a transaction unless it is a single statement."""
        if isinstance(work, Query):
            return await fetch_query(self.raw, work)
        if single:
            return await greenlet_spawn(work, self.over.sync_connection)
        await self.raw.execute(READ)
        read_result = await self.within(work)
        await self.commit()
        return read_result

    async def fetch(self, sql: Sql) -> list[Any]:
        """Run one statement; return its rows."""
        return list(await self.raw.fetch(sql.text, *all_storable(sql.values)))

    async def within(self, work: Work[Any]) -> Any:
        """Run a work in the open transaction; roll it back if it fails."""
        try:
            return await greenlet_spawn(work, self.over.sync_connection)
        except TimeoutError:  # nor would the server answer to the end of the transaction
            self.raw.terminate()
            raise
        except BaseException:
            await self._roll_back()
            raise

    async def commit(self) -> None:
        """Commit. Raises OperationalError if the server rolled back: a statement had failed."""
        if (command_tag := await self.raw.execute("COMMIT")) != "COMMIT":
            raise OperationalError("COMMIT", None, OSError(f"the server answered {command_tag}"))

    async def _roll_back(self) -> None:
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self.raw.execute("ROLLBACK")


def open_connections(
    url: str, synchronous: str, options: Mapping[str, Any], server: tuple[bytes, int]
) -> PostgresConnections:
    """Return the connections for a URL. synchronous: says nothing of a server."""
    return PostgresConnections(url, server, options)


class PostgresConnections:
    """The connections to one database.

    server: the secret that keys the search index, and how many at most. options: that they carry.
    """

    pause: asyncio.Future[None] | None = None
    checkpoint: asyncio.Task[None] | None = None
    parallel = True
    lease: SlotLease | None = None

    def __init__(
        self, url: str, server: tuple[bytes, int], options: Mapping[str, Any] | None = None
    ) -> None:
        self._url, self._incarnation = url, new_incarnation()
        self._key, self._size = server
        self._options = options or {}
        self.index_changes = IndexChanges()  # none: no write runs `at_once`
        self._engine = self._new_engine(STATEMENTS)
        self._places = asyncio.Semaphore(self._size)  # one for each connection in use
        self._free_connections: list[PostgresConnection] = []
        self._is_open = False
        self._open_connections: set[PostgresConnection] = set()
        # Writes of one owner wait here, not on the connections that others need.
        self._lanes: WeakValueDictionary[WriteLock, asyncio.Lock] = WeakValueDictionary()

    def need_lease(self) -> None:
        self.lease = SlotLease(self._url, self._incarnation)

    async def open(self) -> None:
        """Look at the server; safe to repeat after a failure.

        Raises OSError, SQLAlchemyError, NotUpgraded.
        """
        await self.close()
        self._places, self._free_connections = asyncio.Semaphore(self._size), []
        if not await _look_at(self._url):
            log.warning(NO_STATEMENTS)
            self._engine = self._new_engine(0)
        self._is_open = True

    def _new_engine(self, statements: int) -> AsyncEngine:
        engine = _engine(self._url, session_name(self._incarnation), statements)
        return engine.execution_options(**self._options, **{DRIVER_OPTION: DRIVER})

    async def read(self, work: Work[T], *, single: bool = False) -> T:
        """Run a read in one moment. Raises what it raised, and SQLAlchemyError.

        single: it is one statement, which needs no transaction.
        """
        for tries in range(2):
            connection = await self._take()
            try:
                return cast("T", await connection.read(work, single=single))
            except FAILURES as e:
                # A connection that broke while nobody used it says nothing about the server.
                if tries or not (_is_lost(e, connection) or _is_repeated(e)):
                    raise _as_database_error(e) from e
            finally:
                await self._give(connection)
        raise AssertionError  # the second try returns or raises

    async def write(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Run works in one transaction that excludes all other writes."""
        return await self.write_one(lambda conn: [work(conn) for work in works])

    async def write_one(
        self,
        work: Work[T],
        lock: WriteLock = EVERYTHING,
        *,
        once: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
        shortcut: Shortcut[T] | None = None,
    ) -> T:
        """Run one write in its own transaction; durable when this returns.

        once: it may not run twice. is_wanted: whether its caller still waits. shortcut: tried
        first. Raises what it raised, SQLAlchemyError and Withdrawn.
        """
        if lock is NOTHING:
            return await self._write_repeatedly(work, lock, once, is_wanted)
        if (lane := self._lanes.get(lock)) is None:
            lane = self._lanes[lock] = asyncio.Lock()
        async with lane:
            if not is_wanted():
                raise Withdrawn
            if shortcut is not None and (shortcut_result := await self._try(shortcut)) is not None:
                return shortcut_result
            return await self._write_repeatedly(work, lock, once, is_wanted)

    async def _try(self, shortcut: Shortcut[T]) -> T | None:
        """Run a shortcut; None if it did not write, or if that is unknown.

        Raises what `build` raises.
        """
        connection: PostgresConnection | None = None
        try:
            if (sql := shortcut.build()) is None:
                return None
            connection = await self._take()
            fetched_rows = await connection.fetch(sql)
            return shortcut.tell(fetched_rows[0]) if fetched_rows else None
        except FAILURES as e:
            shortcut.is_doubtful = connection is not None and _is_lost(e, connection)
            return None
        finally:
            if connection is not None:
                await self._give(connection)

    async def _write_repeatedly(
        self, work: Work[T], lock: WriteLock, once: bool, is_wanted: Callable[[], bool]
    ) -> T:
        for tries in range(1, TRIES + 1):
            write = _Write(work, lock, is_wanted)
            connection: PostgresConnection | None = None
            try:
                connection = await self._take()
                return cast("T", await write.run(connection))
            except FAILURES as e:
                is_unanswered = connection is None and tries == 1
                may_repeat = is_unanswered or _is_lost(e, connection) or _is_repeated(e)
                if connection is not None:  # before the question below, which takes a place too
                    await self._give(connection)
                    connection = None
                if write.committing and await self._was_committed(write.transaction):
                    return cast("T", write.found)
                if tries == TRIES or not may_repeat or (once and write.begun) or not is_wanted():
                    raise _as_database_error(e) from e
            finally:
                if connection is not None:
                    await self._give(connection)
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (tries - 1))
        raise AssertionError  # the last try returns or raises

    async def _was_committed(self, transaction: str) -> bool:
        """Ask the server for the outcome of a transaction whose commit was not answered.

        Raises OperationalError if it does not know, or may mean another transaction.
        """
        number, server = transaction.split(" ", 1)
        for tries in range(TRIES):
            try:
                connection = await self._take()
                try:
                    outcome, answering_server = await connection.raw.fetchrow(WAS_COMMITTED, number)
                finally:
                    await self._give(connection)
                if outcome == "committed" and answering_server != server:
                    raise OperationalError(None, None, OSError("the server crashed meanwhile"))
                if outcome != "in progress":
                    return bool(outcome == "committed")
            except FAILURES as e:
                if tries == TRIES - 1:
                    raise _as_database_error(e) from e
            await asyncio.sleep(PAUSE_SECONDS * 2**tries)
        raise OperationalError(None, None, OSError(f"the transaction {number} is in progress"))

    async def _take(self) -> PostgresConnection:
        """Return a connection. Raises OperationalError if none is free in time, OSError."""
        if not self._is_open:
            raise OperationalError(None, None, OSError("the store is not open"))
        await self._take_place()
        try:
            connection = await self._find_free() or await self._connect()
        except BaseException:
            self._places.release()
            raise
        tell_of_connection()
        return connection

    async def _find_free(self) -> PostgresConnection | None:
        while self._free_connections:
            connection = self._free_connections.pop()
            if not connection.raw.is_closed():
                return connection
            await self._drop(connection)
        return None

    async def fill(self) -> None:
        """Open every connection, so that the first requests wait for none.

        A server that refuses some of them is shared with others, and the rest has to do.
        """
        connections = await asyncio.gather(
            *(self._take() for _ in range(self._size)), return_exceptions=True
        )
        failures = [entry for entry in connections if not isinstance(entry, PostgresConnection)]
        for entry in connections:
            if isinstance(entry, PostgresConnection):
                await self._give(entry)
        if failures:
            log.warning(
                "the database refuses %d of the %d connections of storage.pool: %s",
                len(failures),
                self._size,
                type(failures[0]).__name__,
            )

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # at once: without a timer
            return
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await self._places.acquire()
        except TimeoutError as e:
            raise OperationalError(
                None, None, OSError(f"no connection was free within {TAKE_SECONDS} s")
            ) from e

    async def _connect(self) -> PostgresConnection:
        over = await self._engine.connect()
        pooled = await over.get_raw_connection()
        if over.sync_connection is not None:
            over.sync_connection.info["key"] = self._key
        connection = PostgresConnection(over, pooled.driver_connection)
        self._open_connections.add(connection)
        is_ready = False
        try:
            await learn_arrays(connection.raw)
            is_ready = True
        except FAILURES as e:
            raise _as_database_error(e) from e
        finally:
            if not is_ready:
                await self._drop(connection)
        return connection

    async def _give(self, connection: PostgresConnection) -> None:
        """Take a connection back; one that is broken, or still in a transaction, is closed."""
        if connection.raw.is_closed() or connection.raw.is_in_transaction():
            await self._drop(connection)
        else:
            self._free_connections.append(connection)
        self._places.release()

    async def _drop(self, connection: PostgresConnection) -> None:
        self._open_connections.discard(connection)
        connection.raw.terminate()
        with contextlib.suppress(SQLAlchemyError, OSError, asyncpg.InterfaceError):
            await connection.over.invalidate()
            await connection.over.close()

    def at_once(self, works: Sequence[Work[Any]], *, reading: bool = False) -> list[Any] | None:
        return None

    def version(self) -> int | None:
        """Return a constant: cached rows are compared with the database before they are used."""
        return 0

    async def close(self) -> None:
        self._is_open = False
        for connection in list(self._open_connections):
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await connection.raw.close(timeout=1)
            await self._drop(connection)


class _Write:
    """One attempt at a write, and its progress."""

    def __init__(self, work: Work[Any], lock: WriteLock, is_wanted: Callable[[], bool]) -> None:
        self._work, self._lock, self._is_wanted = work, lock, is_wanted
        self.begun = self.committing = False
        self.transaction = ""
        self.found: Any = None

    async def run(self, connection: PostgresConnection) -> Any:
        await connection.raw.execute(WRITE)
        self.transaction = await self._take_lock(connection.raw)
        if not self._is_wanted():
            raise Withdrawn
        self.begun = True
        self.found = await connection.within(self._work)
        if not self._is_wanted():
            raise Withdrawn
        self.committing = True
        await connection.commit()
        return self.found

    async def _take_lock(self, raw_connection: asyncpg.Connection) -> str:
        lock = self._lock
        if lock is EVERYTHING or lock is NOTHING:
            transaction_id = await raw_connection.fetchval(LOCKS[lock.value])
        else:
            transaction_id = await raw_connection.fetchval(
                LOCKS["owner" if isinstance(lock, str) else "scope"], storable(lock)
            )
        return str(transaction_id)


def _engine(url: str, name: str, statements: int) -> AsyncEngine:
    engine = create_async_engine(
        url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        connect_args={
            **cache_arguments(statements),
            "async_creator_fn": connect,
            "timeout": CONNECT_SECONDS,
            "command_timeout": ANSWER_SECONDS,
            "server_settings": {"application_name": name},
        },
    )

    @event.listens_for(engine.sync_engine, "before_cursor_execute", retval=True)
    def _without_nul(*event: Any) -> tuple[str, Any]:
        _, _, statement, parameters, _, is_many = event
        if is_many:
            return statement, [tuple(map(storable, row)) for row in parameters]
        return statement, tuple(map(storable, parameters))

    return engine


async def _look_at(url: str) -> bool:
    """Check the server; return whether prepared statements may be kept.

    Raises what `check_server` raises.
    """
    raw_connection = await asyncpg.connect(**{**driver_arguments(url), "timeout": CONNECT_SECONDS})
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await check_server(raw_connection)
            return await keeps_statements(raw_connection)
    finally:
        raw_connection.terminate()


def _is_lost(error: BaseException, connection: PostgresConnection | None) -> bool:
    """Tell whether the connection was lost, rather than the statement refused.

    One that does not answer is closed.
    """
    if connection is not None and isinstance(error, TimeoutError):
        connection.raw.terminate()
    return (connection is not None and connection.raw.is_closed()) or sqlstate_of(error).startswith(
        LOST
    )


def _is_repeated(error: BaseException) -> bool:
    return sqlstate_of(error) in REPEATED


def _as_database_error(error: BaseException) -> BaseException:
    """Return what callers know: SQLAlchemy's errors and OSError."""
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
        return OperationalError(None, None, error)
    return error
