"""The journal: turns as they end, one row each, and filed into the tables later, many at a time.

A plain turn writes a dozen rows in eight tables and their indexes: 15 pages when it is alone. Its
row in the journal is one page of its own, and 64 turns that are filed together share the others.

- What is appended is durable, as if it were filed. Whoever reads or writes anything else has it
  filed first, in the same transaction if it writes (see `Database`), so nobody else sees the
  journal.
- A row is filed and removed in one transaction: exactly once, whenever the process ends.
- A row is appended on a condition that makes filing sure: nobody erased its owner, and its
  conversation ends as the turn found it. Else, and for whatever is not plain, nothing is appended
  and the turn is written at once, behind all rows of the journal.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import starmap
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, select, text, update
from sqlalchemy.exc import InterfaceError, OperationalError

from memory.errors import ErasedMeanwhile
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables, keep_beside
from memory.stores.sql.engine.gathered_writes import gather_writes
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import execute, execute_sql, key_list
from memory.stores.sql.index.index_changes import IndexChange, note_change
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.journal_entries import (
    FiledTurn,
    JournalEntry,
    join_openings,
    read_turn,
)

log = logging.getLogger("mnemogate")
T = TypeVar("T")
# Rows a transaction.
FILED_TOGETHER = 64
# That wait; a turn beyond that is written at once.
MOST_ROWS, MOST_BYTES = 1024, 8 << 20
# The key of no scope.
NOTHING_WAITS = b""
OUTAGES = (sqlite3.OperationalError, OperationalError, InterfaceError, OSError)
j = t.journal.c
# Nothing is added where the scope is null, which the table refuses. (To select the row from where
# it may be added would copy it first, since the table that it goes to is read.)
APPEND = text(
    "INSERT OR IGNORE INTO journal (id, scope_id, conversation, head, entry) VALUES (:id, "
    "(SELECT s.id FROM scopes s WHERE s.id = :scope "
    "AND coalesce((SELECT generation FROM generations WHERE owner = :owner), 0) = :generation "
    "AND coalesce((SELECT w.head FROM journal w WHERE w.conversation = :conversation "
    "ORDER BY w.id DESC LIMIT 1), (SELECT coalesce(v.head, 0) FROM conversations v "
    "WHERE v.id = :conversation AND v.scope_id = s.id), -1) = :expected), "
    ":conversation, :head, :entry) RETURNING id"
)
NEXT = (
    select(j.id, j.scope_id, j.entry)
    .where(j.broken.is_(False), j.id > bindparam("after"))
    .order_by(j.id)
    .limit(bindparam("most"))
)
NEXT_OF = NEXT.where(j.scope_id == bindparam("scope"))
BREAK = update(t.journal).where(j.id == bindparam("key")).values(broken=True)


class _WaitingRow(NamedTuple):
    """A row that waits. key: its row key. size: its bytes. is_urgent: it has jobs."""

    key: int
    scope_id: int
    conversation: int
    size: int
    is_urgent: bool


CONVERSATION = attrgetter("conversation")


class Journal:
    """The journal of one database, and what this process knows of it.

    It may know of rows that others have filed since, never of too few: one process writes a file.
    tables: the application's.
    """

    def __init__(self) -> None:
        self.tables: list[ApplicationTables] = []
        # That wait, at most.
        self.rows = 0
        # Of these, how many have jobs.
        self.urgent = 0
        # Key of the row that was appended last.
        self.newest_key = 0
        self._bytes = 0
        # By the key of a scope: its rows that wait, the oldest first.
        self._waiting_rows: dict[bytes, list[_WaitingRow]] = {}
        # Keys of their scopes, by the scope's row.
        self._scopes: dict[int, bytes] = {}

    def key_of(self, scope_id: int | None) -> bytes | None:
        """Return the key of a scope of which rows may wait, for `waits`. scope_id: None for any."""
        return None if scope_id is None else self._scopes.get(scope_id, NOTHING_WAITS)

    def waits(self, scope: bytes | None, but: int | None = None) -> bool:
        """Tell whether rows of a scope wait, of any if it is None. but: a conversation."""
        if scope is None:
            return self.rows > 0
        return not {but}.issuperset(map(CONVERSATION, self._waiting_rows.get(scope, ())))

    def append(self, conn: Connection, entry: JournalEntry) -> bool:
        """Append a row; False if the turn has to be written at once. Raises ErasedMeanwhile."""
        if self.rows >= MOST_ROWS or self._bytes >= MOST_BYTES:
            return False
        values, scope = entry.values, entry.owner.scope.key
        if values["scope"] is None:
            values["scope"] = scopes.get_or_create(conn, entry.owner)
        if not execute(conn, APPEND, values):
            return False
        size = len(values["entry"])
        self.newest_key = values["id"]
        key, scope_id = self.newest_key, values["scope"]
        row = _WaitingRow(key, scope_id, entry.conversation, size, entry.is_urgent)
        self._waiting_rows.setdefault(scope, []).append(row)
        self._scopes[row.scope_id] = scope
        self.rows += 1
        self.urgent += row.is_urgent
        self._bytes += size
        return True

    def file(self, conn: Connection, of: bytes | None = None, max_rows: int | None = None) -> int:
        """File rows, the oldest first; return the key up to which none is left to file.

        of: a scope, all if it is None. max_rows: rows. A row that cannot be filed stays, marked as
        broken, and holds up no other.
        """
        statement, values = NEXT, {"after": 0, "most": FILED_TOGETHER}
        if of is not None:
            waiting_rows = self._waiting_rows.get(of)
            statement = NEXT_OF
            values["scope"] = waiting_rows[0].scope_id if waiting_rows else 0
        filed = 0
        while max_rows is None or filed < max_rows:
            rows = execute(conn, statement, values)
            if rows:
                self._file_together(conn, rows)
                values["after"] = rows[-1].id
            filed += len(rows)
            if len(rows) < FILED_TOGETHER:
                # Of a transaction that failed, rows may be known that are not there.
                return max(values["after"], self.newest_key)
        return values["after"]

    def note_filed(self, of: bytes | None, upto: int) -> None:
        """Note that the rows of a scope, or all, up to a key are filed, and committed."""
        for scope in [of] if of is not None else list(self._waiting_rows):
            waiting_rows = self._waiting_rows.pop(scope, [])
            for row in waiting_rows:
                if row.key <= upto:
                    self._count(row, -1)
            if remaining_rows := [row for row in waiting_rows if row.key > upto]:
                self._waiting_rows[scope] = remaining_rows
            elif waiting_rows:
                self._scopes.pop(waiting_rows[0].scope_id, None)

    def _count(self, row: _WaitingRow, number: int) -> None:
        self.rows += number
        self.urgent += number * row.is_urgent
        self._bytes += number * row.size

    def _file_together(self, conn: Connection, rows: Sequence[Any]) -> None:
        try:
            with _savepoint(conn):
                self._write(conn, join_openings(starmap(read_turn, rows)))
                _remove(conn, [row.id for row in rows])
        except OUTAGES:
            raise
        except Exception:
            # One of them cannot be filed, which is told of it below.
            for row in rows:
                self._file_alone(conn, row)

    def _file_alone(self, conn: Connection, row: Any) -> None:
        try:
            with _savepoint(conn):
                self._write(conn, [read_turn(*row)])
                _remove(conn, [row.id])
        except OUTAGES:
            raise
        except ErasedMeanwhile:
            log.info("a turn of the journal is dropped: its user or conversation is erased")
            _remove(conn, [row.id])
        except Exception as e:
            # Without its message, which may quote a row.
            log.error("turn %d of the journal cannot be filed: %s", row.id, type(e).__name__)  # noqa: TRY400
            execute(conn, BREAK, {"key": row.id})

    def _write(self, conn: Connection, turns: Sequence[FiledTurn]) -> None:
        """Write turns, those of different scopes together: what one reads, no other writes."""
        for group in _group_apart(turns):
            owners = {turn.key: turn.first.owner for turn in group}
            statuses = scopes.statuses_of_rows(conn, owners)
            with gather_writes(conn):
                for turn, status in zip(group, statuses, strict=True):
                    self._write_turn(conn, turn, status)
        for scope_id, jobs in _jobs_of(turns).items():
            turn_writer.queue_jobs(conn, jobs, scope_id)

    def _write_turn(self, conn: Connection, turn: FiledTurn, status: Any) -> None:
        if turn.record is not None:
            turn_writer.record_answers(conn, turn.record, turn.opening, status)
            keep_beside(conn, self.tables, turn.record.beside)
        elif turn.opening is not None:
            turn_writer.open_turn(conn, turn.opening, status=status)


class BehindJournal(Generic[T]):
    """A work that files the journal first, in its transaction, if it needs that.

    of: see `Database.read`. filed: the key up to which it filed, 0 for nothing; rows are filed for
    good once the transaction is committed.
    """

    def __init__(
        self, journal: Journal, work: Callable[[Connection], T], of: bytes | None = None
    ) -> None:
        self._journal, self._work, self.of = journal, work, of
        self.filed = 0

    def __call__(self, conn: Connection) -> T:
        self.filed = 0
        if self._journal.waits(self.of):
            self.filed = self._journal.file(conn, self.of)
        return self._work(conn)


class FilingStep(BehindJournal[None]):
    """A work that files a few rows, and nothing else."""

    def __init__(self, journal: Journal, of: bytes | None = None) -> None:
        super().__init__(journal, _do_nothing, of)

    def __call__(self, conn: Connection) -> None:
        self.filed = self._journal.file(conn, self.of, max_rows=FILED_TOGETHER)


class AppendedTurn(BehindJournal[T]):
    """A turn that is appended to the journal; written by `work` where it cannot be.

    It is written behind the rows of its scope. entry: None if it cannot. appended: returns what
    `work` would, of the scope's row. check: raises what forbids both.
    """

    def __init__(
        self,
        journal: Journal,
        work: Callable[[Connection], T],
        scope: bytes,
        entry: JournalEntry | None,
        append_result: Callable[[int], T],
    ) -> None:
        super().__init__(journal, work, scope)
        self._entry, self._append_result = entry, append_result
        self.check: Callable[[Connection], None] | None = None

    def __call__(self, conn: Connection) -> T:
        self.filed = 0
        if self.check is not None:
            self.check(conn)
        if self._entry is not None and self._journal.append(conn, self._entry):
            return self._append_result(self._entry.values["scope"])
        return super().__call__(conn)


def _do_nothing(conn: Connection) -> None:
    """Write nothing more than was filed."""


def _group_apart(turns: Iterable[FiledTurn]) -> list[list[FiledTurn]]:
    """Return turns in groups of different scopes; those of one scope stay in their order."""
    groups: list[list[FiledTurn]] = []
    places: Counter[int] = Counter()
    for turn in turns:
        if places[turn.scope_id] == len(groups):
            groups.append([])
        groups[places[turn.scope_id]].append(turn)
        places[turn.scope_id] += 1
    return groups


def _jobs_of(turns: Iterable[FiledTurn]) -> dict[int, list[QueuedJob]]:
    """Return the jobs of turns by their scopes, the same one of several turns once."""
    jobs: dict[int, list[QueuedJob]] = {}
    for turn in turns:
        for job in turn.record.jobs if turn.record is not None else ():
            queue = jobs.setdefault(turn.scope_id, [])
            is_alike = job.dedupe is not None and not job.every
            if not (is_alike and any(x.dedupe == job.dedupe for x in queue)):
                queue.append(job)
    return jobs


@contextmanager
def _savepoint(conn: Connection) -> Iterator[None]:
    """Take back what a block wrote if it fails, and nothing else of the transaction."""
    execute_sql(conn, "SAVEPOINT filing")
    try:
        yield
    except BaseException:
        execute_sql(conn, "ROLLBACK TO SAVEPOINT filing")
        # What was noted of the index is not so: anything may have changed.
        note_change(conn, IndexChange(fts.MESSAGES_INDEX, None))
        raise
    execute_sql(conn, "RELEASE SAVEPOINT filing")


def _remove(conn: Connection, keys: Sequence[int]) -> None:
    execute(conn, _removal(sql_driver(conn)), key_list(conn, keys))


@cache
def _removal(driver: SqlDriver) -> Any:
    return delete(t.journal).where(driver.is_listed(j.id))
