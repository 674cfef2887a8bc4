"""The database: many readers, one writer with group commit.

Work is a function of a SQLAlchemy connection.

- A write is a function that may run twice: writes that wait together share one transaction, and if
  one of them fails the others run again, each in its own transaction. A caller that is cancelled
  withdraws a write that has not begun.
- Long work (an import, an erasure) is written in pieces (see `batches`). Each piece has its own
  commit, and only one piece waits at a time: any other write waits for the current piece at most.
- A read has a deadline, from when it has a connection. After it the caller continues without; the
  query is left to end by itself, since cancelling it would cost its connection.
- On SQLite a whole work is one hop to a connection's thread, or none (see `sqlite`): through the
  asynchronous engine every statement is three or four, which measured 114 hops and 26 ms of CPU a
  turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from memory.errors import NotUpgraded, RowRefused, StoreUnavailable
from memory.stores.sql.engine.application_tables import ApplicationTables
from memory.stores.sql.engine.connections import Connections, Work
from memory.stores.sql.engine.database_kinds import load_connections
from memory.stores.sql.engine.preparation import prepare_tables
from memory.stores.sql.engine.shortcut import Shortcut
from memory.stores.sql.engine.sqlite.fts import INDEX_CHARACTERS, LIMIT_OPTION, IndexLimit
from memory.stores.sql.engine.waiting import (
    WAIT_SECONDS,
    ends_within,
    gets_connection,
    told_of_connection,
)
from memory.stores.sql.engine.write_lock import EVERYTHING, Withdrawn, WriteLock
from memory.stores.sql.index.index_changes import IndexChanges
from memory.stores.sql.turns.journal import (
    FILED_TOGETHER,
    NOTHING_WAITS,
    BehindJournal,
    FilingStep,
    Journal,
)
from memory.stores.sql.turns.journal_filer import JournalFiler

if TYPE_CHECKING:
    from memory.stores.sql.engine.postgres.postgres_lease import SlotLease

log = logging.getLogger("mnemogate")
T = TypeVar("T")
POOL = 8  # connections to a server
GROUP = 64  # writes that share a commit
NO_LEASE = "others may take over what this worker does: it has lost its lease"
NO_TURNS = NOTHING_WAITS  # the scope of works that touch no turns
VERSION_SECONDS = 0.02  # how long another process's write may go unnoticed


class WaitingWork(NamedTuple):
    """A queued write and its waiting caller. alone: it shares its commit with no other."""

    work: Work[Any]
    done: asyncio.Future[Any]
    alone: bool = False


CLOSE_SECONDS = 2.0  # by then, callers have given up or used the recovery log


class Database:
    """The database of a memory. Opens on `open()`.

    url: `sqlite+aiosqlite:///file.db` or `postgresql+asyncpg://...`. synchronous: SQLite's, NORMAL
    or FULL. index_characters: of one message that are indexed. secret: the server's, which on
    Postgres keys the search index and is checked. pool: connections to Postgres at most.
    application_tables: tables of the application; it registers them, and is told of erasures and
    expiry.
    """

    def __init__(
        self,
        url: str,
        synchronous: str = "NORMAL",
        index_characters: int = INDEX_CHARACTERS,
        secret: bytes = b"",
        pool: int = POOL,
    ) -> None:
        if synchronous not in ("NORMAL", "FULL"):
            raise ValueError(f"storage.synchronous is {synchronous!r}: use NORMAL or FULL")
        self.url = url
        self.index_limit = IndexLimit(index_characters)
        options = {LIMIT_OPTION: self.index_limit}
        self._connections: Connections = load_connections(url).open_connections(
            url, synchronous, options, (secret, pool)
        )
        # Whether others may write without `version` telling: what is kept has to be compared.
        self.is_shared = self._connections.parallel
        self._secret = secret
        self._queue: asyncio.Queue[WaitingWork] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        # Reads, and writes side by side.
        self._write_loop: set[asyncio.Task[Any]] = set()
        # Taken from the queue, but not part of the previous group.
        self._next: WaitingWork | None = None
        # Its holder may have a piece in the queue.
        self._waiting_pieces = asyncio.Lock()
        self._small_writes: list[WaitingWork] = []
        self._committing = False
        self._versions = 0  # writes of this process that were not small
        # When the connections were last checked, and their version then.
        self._seen_version: tuple[float, int | None] = (-VERSION_SECONDS, None)
        self.filer = JournalFiler(Journal(), self._write_small_work)

    def need_lease(self) -> None:
        """Write only as one of the workers of this database; a file needs no lease."""
        self._connections.need_lease()

    @property
    def lease(self) -> SlotLease | None:
        return self._connections.lease

    @property
    def holder(self) -> int | None:
        """What names this process at the nodes that it works on; None on a file."""
        if not self.is_shared:
            return None
        return self.lease.incarnation if self.lease is not None else None

    def count_workers(self) -> int:
        """Return how many processes serve this database, as far as is known; 1 for a file."""
        return self.lease.living if self.lease is not None else 1

    @property
    def may_write(self) -> bool:
        return self.lease is None or self.lease.is_held

    async def check_may_write(self) -> None:
        """Renew a lease that lapsed while this process stood still.

        Raises StoreUnavailable if others may take over what this worker does.
        """
        if not self.is_shared or self.may_write or self.lease is None:
            return
        if not await self.lease.catch_up():
            raise StoreUnavailable(NO_LEASE)

    @property
    def journal(self) -> Journal:
        return self.filer.journal

    @property
    def application_tables(self) -> list[ApplicationTables]:
        return self.journal.tables

    @application_tables.setter
    def application_tables(self, tables: list[ApplicationTables]) -> None:
        self.journal.tables = tables

    @property
    def version(self) -> tuple[int, int] | None:
        """Unchanged while only small writes happened, in this process and any other.

        Writes of other processes show after some milliseconds. None if that is unknown.
        """
        checked_at, seen_version = self._seen_version
        if (now := time.monotonic()) - checked_at > VERSION_SECONDS:
            seen_version = self._connections.version()
            self._seen_version = now, seen_version
        return None if seen_version is None else (self._versions, seen_version)

    @property
    def index_changes(self) -> IndexChanges:
        """What small writes changed of the search index; other writes change `version`."""
        return self._connections.index_changes

    async def open(self) -> None:
        """Create the tables of an empty database, refuses one of another version, starts the
        writer.

        A database that is refused is closed again.
        """
        try:
            await self._connections.open()
            prepare = partial(prepare_tables, secret=self._secret)
            # Of a server it is only read as a rule: a worker that stands still may hold its locks.
            if not self.is_shared or not await self._connections.read(
                partial(prepare, reading=True)
            ):
                await self._connections.write([prepare])
        except NotUpgraded:
            await self._connections.close()
            raise
        except (SQLAlchemyError, OSError) as e:
            await self._connections.close()
            raise StoreUnavailable(
                f"the database {make_url(self.url).render_as_string()} cannot be opened: {e}"
            ) from e
        self._writer = asyncio.create_task(self._write_on(), name="memory-writer")
        if not self.is_shared:
            await self.filer.file_rest()

    async def close(self) -> None:
        """Finish waiting writes, for at most `CLOSE_SECONDS`, then close every connection."""
        if self._writer is not None and not self._writer.done():
            await self.filer.close(CLOSE_SECONDS)
        if self._writer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    if self._connections.pause is not None:
                        # shielded: a caller that gives up must not cancel it for all.
                        await asyncio.wait([self._connections.pause])
                    await self._queue.join()
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
            self._give_up()
        if self._write_loop:
            await asyncio.wait(self._write_loop, timeout=CLOSE_SECONDS / 2)
        await self._connections.close()
        if self.lease is not None:
            await self.lease.release()

    def _give_up(self) -> None:
        """Fail the remaining writes: a checkpoint or another write took too long."""
        unwritten, self._small_writes = (
            [*self._small_writes, *([self._next] if self._next else ())],
            [],
        )
        while not self._queue.empty():
            unwritten.append(self._queue.get_nowait())
        for waiting_write in unwritten:
            if not waiting_write.done.done():
                waiting_write.done.set_exception(StoreUnavailable("the store was closed meanwhile"))

    async def read(
        self,
        work: Work[T],
        deadline: float | None = None,
        *,
        small: bool = False,
        single: bool = False,
        of: bytes | None = None,
    ) -> T:
        """Run `work` in a read transaction; turns that wait in the journal are filed before.

        of: the key of the only scope whose turns it reads, `NO_TURNS` if it reads none.
        small: reads a few rows by key, so it may run at once on this thread. single: is one
        statement, which needs no transaction. Raises StoreUnavailable after `deadline` seconds, if
        no connection is free in time, or if the database fails.
        """
        await self.filer.file_of(of, deadline)
        if small and (quick_results := self._connections.at_once([work], reading=True)) is not None:
            quick_result: T = quick_results[0]
            return quick_result
        has_connection = asyncio.Event()
        waits = self.is_shared and deadline is not None
        with told_of_connection(has_connection.set) if waits else contextlib.nullcontext():
            task = asyncio.create_task(self._read_once(work, single))
        self._write_loop.add(task)
        task.add_done_callback(self._write_loop.discard)
        if waits and not await gets_connection(task, has_connection):
            # It has no connection that this would cost.
            task.cancel()
            raise StoreUnavailable(f"no connection to the store was free within {WAIT_SECONDS:g} s")
        if not await ends_within(task, deadline):
            task.add_done_callback(lambda t: t.cancelled() or t.exception())
            raise StoreUnavailable(f"the store did not answer within {deadline} s")
        return task.result()

    async def fill_pool(self) -> None:
        """Open every connection to a server, before the first request needs one."""
        await self._connections.fill()

    async def _read_once(self, work: Work[T], single: bool) -> T:
        try:
            return await self._connections.read(work, single=single)
        except (SQLAlchemyError, OSError) as e:
            raise StoreUnavailable(f"the store failed: {type(e).__name__}") from e

    async def write(
        self,
        work: Work[T],
        *,
        small: bool = False,
        piece: bool = False,
        lock: WriteLock = EVERYTHING,
        shortcut: Shortcut[T] | None = None,
    ) -> T:
        """Run `work` in a write transaction; it is durable when this returns.

        Turns that wait in the journal are filed before, in the same transaction; a `BehindJournal`
        decides that itself. small: writes a few rows, so it may run at once on this thread.
        `version` does not change by it: a caller that caches what it changes must handle that.
        piece: of long work, after all other writes. lock: see `write_lock`. shortcut: tried first
        on Postgres. Raises what `work` raised, or StoreUnavailable.
        """
        await self.check_may_write()
        filed_work = work if isinstance(work, BehindJournal) else BehindJournal(self.journal, work)
        is_long = self.journal.rows > FILED_TOGETHER and not isinstance(filed_work, FilingStep)
        if is_long and filed_work.of is None:
            await self.filer.file()
        if self._connections.parallel:
            async with self._waiting_pieces if piece else contextlib.nullcontext():
                return await self._write_beside(filed_work, lock, once=piece, shortcut=shortcut)
        written: T = await self._write_in_turn(filed_work, small=small, piece=piece)
        self._note_written(filed_work)
        return written

    def write_now(self, work: BehindJournal[T]) -> list[T] | None:
        """Run a small write on this thread, where no other waits; None where it must wait.

        It is durable when this returns. What it raises is told when it runs in its turn.
        """
        connections = self._connections
        is_busy = self._committing or self._small_writes or connections.pause is not None
        if is_busy or connections.parallel or not self._queue.empty():
            return None
        if self._writer is None or self._writer.done():
            return None
        try:
            results = connections.at_once([work])
        except Exception:
            # The same work runs again in its turn, and raises the same to its caller.
            return None
        if results is not None:
            self._note_written(work)
        return results

    def _note_written(self, work: BehindJournal[Any]) -> None:
        """Note what a committed write has filed, and file the journal later."""
        if work.filed:
            self.journal.note_filed(work.of, work.filed)
            for call in self.filer.on_filed:
                call()
        if self.filer.journal.rows:
            self.filer.file_later()

    def behind_turns_of(self, scope_id: int | None, work: Work[T]) -> BehindJournal[T]:
        """Return a work that needs the turns of one scope, or of all, for `write`."""
        return BehindJournal(self.journal, work, self.journal.key_of(scope_id))

    def apart_from_turns(self, work: Work[T]) -> BehindJournal[T]:
        """Return a work that touches no turns, for `write`."""
        return BehindJournal(self.journal, work, NO_TURNS)

    async def _write_small_work(self, work: Work[T]) -> T:
        return await self.write(work, small=True)

    async def _write_in_turn(self, work: Work[T], *, small: bool, piece: bool) -> T:
        """Write after what waits already, with others in one transaction."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        async with self._waiting_pieces if piece else contextlib.nullcontext():
            if piece and (checkpoint := self._connections.checkpoint) is not None:
                await asyncio.wait([checkpoint])
            self._wait(WaitingWork(work, outcome, alone=piece), small)
            return await outcome

    async def _write_beside(
        self, work: Work[T], lock: WriteLock, *, once: bool, shortcut: Shortcut[T] | None
    ) -> T:
        """Write beside other writes.

        A caller that is cancelled withdraws what is not committed.
        """
        if self._writer is None or self._writer.done():
            raise StoreUnavailable("the store is not open")
        waits = True
        task: asyncio.Task[T] = asyncio.create_task(
            self._connections.write_one(
                work, lock, once=once, is_wanted=lambda: waits and self.may_write, shortcut=shortcut
            )
        )
        self._write_loop.add(task)
        task.add_done_callback(self._write_loop.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waits = False
            task.add_done_callback(lambda t: t.cancelled() or t.exception())
            raise
        except Withdrawn as e:
            raise StoreUnavailable(NO_LEASE) from e
        except (SQLAlchemyError, OSError) as e:
            raise _as_store_error(e) from e

    def _wait(self, waiting_write: WaitingWork, small: bool) -> None:
        if self._writer is None or self._writer.done():
            raise StoreUnavailable("the store is not open")
        if small:
            if not self._small_writes:
                # after other ready tasks ran, so that writes which come together share a
                # transaction
                waiting_write.done.get_loop().call_soon(self._write_small)
            self._small_writes.append(waiting_write)
        else:
            self._queue.put_nowait(waiting_write)

    def _write_small(self, _: object = None) -> None:
        """Run the small writes that came together at once, or queue them."""
        # Some ms: to be made by another connection costs every cached line its validity.
        if self._connections.pause is not None:
            self._connections.pause.add_done_callback(self._write_small)
            return
        group, self._small_writes = self._small_writes, []
        if not group:
            return
        if self._queue.empty() and not self._committing:
            # One of them failed; its error is raised when it runs alone.
            with contextlib.suppress(Exception):
                results = self._connections.at_once(
                    [_unless_taken_back(waiting_write) for waiting_write in group]
                )
                if results is not None:
                    _tell(group, results)
                    return
        for waiting_write in group:
            self._queue.put_nowait(waiting_write)

    async def _write_on(self) -> None:
        while True:
            group = await self._group()
            self._committing = True
            try:
                await self._commit(group)
            finally:
                self._committing = False
                for _ in group:
                    self._queue.task_done()

    async def _group(self) -> list[WaitingWork]:
        """Return waiting writes that may share a commit, at least one."""
        first_write, self._next = self._next or await self._queue.get(), None
        group = [first_write]
        while not first_write.alone and len(group) < GROUP and not self._queue.empty():
            next_write = self._queue.get_nowait()
            if next_write.alone:
                self._next = next_write
                break
            group.append(next_write)
        return group

    async def _commit(self, group: list[WaitingWork]) -> None:
        try:
            results = await self._connections.write(
                [_unless_taken_back(waiting_write) for waiting_write in group]
            )
        except Exception as e:
            # Each caller gets its own error; the writer must not end.
            if len(group) > 1:
                for waiting_write in group:
                    await self._commit([waiting_write])
            elif not group[0].done.done():
                group[0].done.set_exception(_as_store_error(e))
            else:  # its caller left; without the message, which may quote a row
                log.warning("a write that nobody waits for failed: %s", type(e).__name__)
            return
        self._versions += 1
        _tell(group, results)


def _tell(group: Sequence[WaitingWork], results: Sequence[Any]) -> None:
    for waiting_write, result in zip(group, results, strict=True):
        if not waiting_write.done.done():
            waiting_write.done.set_result(result)


def _unless_taken_back(waiting_write: WaitingWork) -> Work[Any]:
    return lambda conn: None if waiting_write.done.cancelled() else waiting_write.work(conn)


def _as_store_error(error: Exception) -> Exception:
    if not isinstance(error, SQLAlchemyError | OSError):
        return error
    # SQLAlchemy tells values that do not fit from an outage by their SQLSTATE alone.
    state = str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
    is_refused = isinstance(error, DataError | IntegrityError) or state.startswith(("22", "54"))
    kind = RowRefused if is_refused else StoreUnavailable
    return kind(f"the store failed: {type(error).__name__}")
