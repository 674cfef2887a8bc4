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
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, text, update
from sqlalchemy.exc import InterfaceError, OperationalError

from memory.errors import ErasedMeanwhile
from memory.ids import clock, new_key
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables, keep_beside
from memory.stores.sql.engine.gathered_writes import gather_writes
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import execute, execute_sql, key_list
from memory.stores.sql.index.index_changes import IndexChange, note_change
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

log = logging.getLogger("mnemogate")
T = TypeVar("T")
# Rows a transaction.
FILED_TOGETHER = 64
# That wait; a turn beyond that is written at once.
MOST_ROWS, MOST_BYTES = 1024, 8 << 20
# Of one row; a longer turn is written at once, since in the journal its pages are written twice.
ENTRY_BYTES = 1 << 15
# The key of no scope.
NOTHING_WAITS = b""
# The end of a conversation that is not there yet.
NO_CONVERSATION = -1
OUTAGES = (sqlite3.OperationalError, OperationalError, InterfaceError, OSError)
j = t.journal.c
# `+ 0` keeps the conversation's newest row apart from everybody's.
APPEND = text(
    "INSERT INTO journal (id, scope_id, conversation, head, entry) "
    "SELECT :id, s.id, :conversation, :head, :entry FROM scopes s WHERE s.id = :scope "
    "AND coalesce((SELECT generation FROM generations WHERE owner = :owner), 0) = :generation "
    "AND coalesce((SELECT w.head FROM journal w WHERE w.conversation = :conversation "
    "ORDER BY w.id DESC LIMIT 1), (SELECT coalesce(v.head, 0) FROM conversations v "
    "WHERE v.id = :conversation AND v.scope_id = s.id), -1) = :expected RETURNING id"
)
NEXT = (
    select(j.id, j.scope_id, j.entry)
    .where(j.broken.is_(False), j.id > bindparam("after"))
    .order_by(j.id)
    .limit(bindparam("most"))
)
NEXT_OF = NEXT.where(j.scope_id == bindparam("scope"))
BREAK = update(t.journal).where(j.id == bindparam("key")).values(broken=True)
# What the store, or whoever files, knows by itself; `answers`: their rows are in `contents`.
OPENING_OMITS = {"owner", "status", "large_bodies", "holder", "once", "beside"}
# Who asked stands in the contents.
RECORD_OMITS = {"owner", "key", "large_bodies", "versions", "holder", "aside", "answers"} | {
    "explain",
    "said_by",
}


def _stored_form(of: type[msgspec.Struct], omitted: set[str]) -> tuple[Any, Callable[[Any], Any]]:
    """Return the form in which a struct is stored, without some members, and what fills it."""
    members = [field for field in msgspec.structs.fields(of) if field.name not in omitted]
    form = msgspec.defstruct(
        f"Stored{of.__name__}",
        [(m.name, m.type) if m.required else (m.name, m.type, _default_of(m)) for m in members],
        omit_defaults=True,
    )
    return form, attrgetter(*[m.name for m in members])


def _default_of(member: msgspec.structs.FieldInfo) -> Any:
    if member.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=member.default_factory)
    return member.default


_Opening, _members_of_opening = _stored_form(PendingTurn, OPENING_OMITS)
_Record, _members_of_record = _stored_form(TurnRecord, RECORD_OMITS)

# What a row holds. owner: key of the owner in the erasure table.
_StoredTurn: Any = msgspec.defstruct(
    "_StoredTurn",
    [
        ("tenant", str),
        ("user", str | None),
        ("agent", str),
        ("owner", bytes),
        ("generation", int),
        ("opening", _Opening | None, None),
        ("record", _Record | None, None),
        ("explain_id", str | None, None),
    ],
    omit_defaults=True,
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_StoredTurn).decode


class JournalPlace(msgspec.Struct, frozen=True):
    """Where a turn is appended. ends: the conversation's head as the turn knows it.

    A head of 0 is none yet, one of `NO_CONVERSATION` is of a conversation that is not there.
    scope_id: None of a scope that is not there either.
    """

    scope_id: int | None
    conversation: int
    ends: int


class JournalEntry(msgspec.Struct):
    """One row to append.

    owner: of its scope, under whose key readers wait for it. values: of `APPEND`. is_urgent: it has
    jobs.
    """

    owner: ScopeOwner
    conversation: int
    values: dict[str, Any]
    is_urgent: bool = False


def entry_of(
    place: JournalPlace, head: int, opening: PendingTurn | None, record: TurnRecord | None
) -> JournalEntry | None:
    """Return the row of a turn; None if it is too long, or cannot be encoded.

    head: of the conversation behind it. opening, record: its request, its answers, or both.
    """
    turn = record or opening
    assert turn is not None  # noqa: S101 - of a turn there is one at least
    owner, now = turn.owner, clock.now()
    scope = owner.scope
    stored_turn = _StoredTurn(scope.tenant, scope.user, scope.agent, scope.owner, owner.generation)
    if opening is not None:
        stored_turn.opening = _Opening(*_members_of_opening(opening))
        stored_turn.opening.at = now
    if record is not None:
        for node in record.nodes:
            node.at = now
        stored_turn.record = _Record(*_members_of_record(record))
        stored_turn.record.at = now
        if record.explain is not None:
            stored_turn.explain_id = record.explain[0]
            stored_turn.record.explained = turn_writer.explain_text(record.explain[1], now)
    try:
        entry = _encode(stored_turn)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return None
    if len(entry) > ENTRY_BYTES:
        return None
    values = {
        "id": new_key(),
        "scope": place.scope_id,
        "conversation": place.conversation,
        "head": head,
        "expected": place.ends,
        "owner": scope.owner,
        "generation": owner.generation,
        "entry": entry,
    }
    return JournalEntry(owner, place.conversation, values, bool(record and record.jobs))


class _FiledTurn(NamedTuple):
    """A turn to be filed: its request, its answers, or both. scope_id: the scope's row."""

    scope_id: int
    opening: PendingTurn | None
    record: TurnRecord | None

    @property
    def first(self) -> PendingTurn | TurnRecord:
        """What is written first."""
        part = self.opening or self.record
        assert part is not None  # noqa: S101 - a row has one of them
        return part


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
        self.urgent = 0  # of these, how many have jobs
        self.newest_key = 0  # key of the row that was appended last
        self._bytes = 0
        # By the key of a scope: its rows that wait, the oldest first.
        self._waiting_rows: dict[bytes, list[_WaitingRow]] = {}
        self._scopes: dict[int, bytes] = {}  # keys of their scopes, by the scope's row

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
                self._write(conn, _join_openings(map(_read_turn, rows)))
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
                self._write(conn, [_read_turn(row)])
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

    def _write(self, conn: Connection, turns: Sequence[_FiledTurn]) -> None:
        """Write turns, those of different scopes together: what one reads, no other writes."""
        for group in _group_apart(turns):
            statuses = [turn_writer.read_status(conn, turn.first) for turn in group]
            with gather_writes(conn):
                for turn, status in zip(group, statuses, strict=True):
                    self._write_turn(conn, turn, status)
        for scope_id, jobs in _jobs_of(turns).items():
            turn_writer.queue_jobs(conn, jobs, scope_id)

    def _write_turn(self, conn: Connection, turn: _FiledTurn, status: Any) -> None:
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


def _read_turn(row: Any) -> _FiledTurn:
    """Return what a row holds."""
    stored_turn = _decode(row.entry)
    scope = Scope.stored(stored_turn.tenant, stored_turn.user, stored_turn.agent, stored_turn.owner)
    owner = ScopeOwner(scope, stored_turn.generation)
    opening = None if stored_turn.opening is None else _opening_of(stored_turn.opening, owner)
    record = stored_turn.record and _record_of(stored_turn.record, owner, stored_turn.explain_id)
    for part in (opening, record):
        if part is not None:
            part.scope_id = row.scope_id
    return _FiledTurn(row.scope_id, opening, record)


def _join_openings(turns: Iterable[_FiledTurn]) -> list[_FiledTurn]:
    """Put the request of a turn to its answer, where both are filed together."""
    turns_by_node: dict[int, _FiledTurn] = {}
    for turn in turns:
        if turn.record is None:
            assert turn.opening is not None  # noqa: S101 - a row has one of them
            turns_by_node[turn.opening.node.id] = turn
            continue
        node = turn.record.nodes[0].id
        opened_turn = turns_by_node.pop(node, None)
        if opened_turn is not None and opened_turn.record is None:
            turn = turn._replace(opening=opened_turn.opening)
        turns_by_node[node] = turn
    return list(turns_by_node.values())


def _group_apart(turns: Iterable[_FiledTurn]) -> list[list[_FiledTurn]]:
    """Return turns in groups of different scopes; those of one scope stay in their order."""
    groups: list[list[_FiledTurn]] = []
    places: Counter[int] = Counter()
    for turn in turns:
        if places[turn.scope_id] == len(groups):
            groups.append([])
        groups[places[turn.scope_id]].append(turn)
        places[turn.scope_id] += 1
    return groups


def _jobs_of(turns: Iterable[_FiledTurn]) -> dict[int, list[QueuedJob]]:
    """Return the jobs of turns by their scopes, the same one of several turns once."""
    jobs: dict[int, list[QueuedJob]] = {}
    for turn in turns:
        for job in turn.record.jobs if turn.record is not None else ():
            queue = jobs.setdefault(turn.scope_id, [])
            is_alike = job.dedupe is not None and not job.every
            if not (is_alike and any(x.dedupe == job.dedupe for x in queue)):
                queue.append(job)
    return jobs


def _opening_of(stored_opening: Any, owner: ScopeOwner) -> PendingTurn:
    members = {name: getattr(stored_opening, name) for name in _Opening.__struct_fields__}
    return PendingTurn(owner=owner, **members)


def _record_of(stored_record: Any, owner: ScopeOwner, explain_id: str | None) -> TurnRecord:
    members = {name: getattr(stored_record, name) for name in _Record.__struct_fields__}
    answers: list[Any] = [{} for _ in stored_record.nodes]
    explain: tuple[str, Any] | None = None if explain_id is None else (explain_id, {})
    return TurnRecord(owner=owner, answers=answers, explain=explain, **members)


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
