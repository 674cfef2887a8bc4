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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, text, update
from sqlalchemy.exc import InterfaceError, OperationalError

from memory.errors import ErasedMeanwhile
from memory.ids import clock, new_key
from memory.scope import Scope
from memory.stores.sql import fts, turn_writer
from memory.stores.sql import schema as t
from memory.stores.sql.application_tables import ApplicationTables, keep_beside
from memory.stores.sql.index_changes import IndexChange, note_change
from memory.stores.sql.scopes import ScopeOwner
from memory.stores.sql.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.statements import execute, execute_sql, key_list
from memory.stores.sql.turn_rows import PendingTurn, TurnRecord

log = logging.getLogger("mnemogate")
T = TypeVar("T")
FILED_TOGETHER = 64  # rows a transaction
MOST_ROWS, MOST_BYTES = 1024, 8 << 20  # that wait; a turn beyond that is written at once
# Of one row; a longer turn is written at once, since in the journal its pages are written twice.
ENTRY_BYTES = 1 << 15
NO_CONVERSATION = -1  # the end of a conversation that is not there yet
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
    .where(j.broken.is_(False))
    .order_by(j.id)
    .limit(bindparam("most"))
)
BREAK = update(t.journal).where(j.id == bindparam("key")).values(broken=True)
# What the store, or whoever files, knows by itself; `answers`: their rows are in `contents`.
OPENING_OMITS = {"owner", "there", "large", "holder", "once", "beside"}
RECORD_OMITS = {"owner", "key", "large", "versions", "holder", "aside", "answers", "explain"}


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
    """

    scope_id: int
    conversation: int
    ends: int


class JournalEntry(msgspec.Struct):
    """One row to append.

    scope: its key, under which readers wait for it. values: of `APPEND`. is_urgent: it has jobs.
    """

    scope: bytes
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
    stored = _StoredTurn(scope.tenant, scope.user, scope.agent, scope.owner, owner.generation)
    if opening is not None:
        stored.opening = _Opening(*_members_of_opening(opening))
        stored.opening.at = now
    if record is not None:
        for node in record.nodes:
            node.at = now
        stored.record = _Record(*_members_of_record(record))
        stored.record.at = now
        if record.explain is not None:
            stored.explain_id = record.explain[0]
            stored.record.explained = turn_writer.explain_text(record.explain[1], now)
    try:
        encoded = _encode(stored)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return None
    if len(encoded) > ENTRY_BYTES:
        return None
    values = {
        "id": new_key(),
        "scope": place.scope_id,
        "conversation": place.conversation,
        "head": head,
        "expected": place.ends,
        "owner": scope.owner,
        "generation": owner.generation,
        "entry": encoded,
    }
    return JournalEntry(scope.key, place.conversation, values, bool(record and record.jobs))


class Journal:
    """The journal of one database, and what this process knows of it.

    It may know of rows that others have filed since, never of too few: one process writes a file.
    tables: the application's.
    """

    def __init__(self) -> None:
        self.tables: list[ApplicationTables] = []
        self.appended = 0  # rows of this process
        self.filed = 0  # of those, the first ones that are not in the journal any more
        self.is_urgent = False  # jobs wait in it
        self._bytes = 0  # of those that were appended since rows were filed
        # By the key of a scope and conversation: the number of the newest row.
        self._waiting: dict[bytes, dict[int, int]] = {}

    @property
    def rows(self) -> int:
        """How many rows wait, at most."""
        return self.appended - self.filed

    def waits(self, scope: bytes | None, but: int | None = None) -> bool:
        """Tell whether rows of a scope wait, of any if it is None. but: a conversation."""
        if scope is None or self.appended == self.filed:
            return self.appended != self.filed
        conversations = self._waiting.get(scope)
        if not conversations:
            return False
        return but is None or any(
            number > self.filed for key, number in conversations.items() if key != but
        )

    def append(self, conn: Connection, entry: JournalEntry) -> bool:
        """Append a row; False if the turn has to be written at once."""
        if self.rows >= MOST_ROWS or self._bytes >= MOST_BYTES:
            return False
        if not execute(conn, APPEND, entry.values):
            return False
        self.appended += 1
        self.is_urgent = self.is_urgent or entry.is_urgent
        self._bytes += len(entry.values["entry"])
        self._waiting.setdefault(entry.scope, {})[entry.conversation] = self.appended
        return True

    def file(self, conn: Connection, most: int | None = None) -> int:
        """File rows, the oldest first, at most so many; return how many.

        A row that cannot be filed stays, marked as broken, and holds up no other.
        """
        filed = 0
        while most is None or filed < most:
            rows = execute(conn, NEXT, {"most": FILED_TOGETHER})
            if not rows:
                break
            self._file_together(conn, rows)
            filed += len(rows)
        return filed

    def note_filed(self, number: int) -> None:
        """Note that the first rows up to a number of `appended` are filed, and committed."""
        if number <= self.filed:
            return
        self.filed, self._bytes, self.is_urgent = number, 0, False
        for scope, conversations in list(self._waiting.items()):
            left = {key: newest for key, newest in conversations.items() if newest > number}
            if left:
                self._waiting[scope] = left
            else:
                del self._waiting[scope]

    def _file_together(self, conn: Connection, rows: Sequence[Any]) -> None:
        try:
            with _savepoint(conn):
                for turn in _join_openings(_decode(row.entry) for row in rows):
                    self._write(conn, turn)
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
                self._write(conn, _decode(row.entry))
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

    def _write(self, conn: Connection, turn: Any) -> None:
        scope = Scope.stored(turn.tenant, turn.user, turn.agent, turn.owner)
        owner = ScopeOwner(scope, turn.generation)
        opening = None if turn.opening is None else _opening_of(turn.opening, owner)
        if turn.record is None:
            assert opening is not None  # noqa: S101 - a row has one of them
            turn_writer.open_turn(conn, opening)
            return
        record = _record_of(turn.record, owner, turn.explain_id)
        turn_writer.record(conn, record, opening)
        keep_beside(conn, self.tables, record.beside)


class BehindJournal(Generic[T]):
    """A work that files the journal first, in its transaction, if it needs that.

    of: see `Database.read`. filed: the number of the newest row that it filed, 0 for none; rows are
    filed for good once the transaction is committed.
    """

    def __init__(
        self, journal: Journal, work: Callable[[Connection], T], of: bytes | None = None
    ) -> None:
        self._journal, self._work, self._of = journal, work, of
        self.filed = 0

    def __call__(self, conn: Connection) -> T:
        self.filed = 0
        if self._journal.waits(self._of):
            self._journal.file(conn)
            self.filed = self._journal.appended
        return self._work(conn)


class AppendedTurn(BehindJournal[T]):
    """A turn that is appended to the journal; written behind it by `work` where it cannot be.

    entry: None if it cannot. appended: what `work` would return.
    """

    def __init__(
        self,
        journal: Journal,
        work: Callable[[Connection], T],
        entry: JournalEntry | None,
        appended: T,
    ) -> None:
        super().__init__(journal, work)
        self._entry, self._appended = entry, appended

    def __call__(self, conn: Connection) -> T:
        self.filed = 0
        if self._entry is not None and self._journal.append(conn, self._entry):
            return self._appended
        return super().__call__(conn)


def _join_openings(turns: Iterable[Any]) -> list[Any]:
    """Put the request of a turn to its answer, where both are filed together."""
    joined: dict[int, Any] = {}
    for turn in turns:
        if turn.record is None:
            joined[turn.opening.node.id] = turn
            continue
        node = turn.record.nodes[0].id
        opened = joined.pop(node, None)
        if opened is not None and opened.record is None:
            turn.opening = opened.opening
        joined[node] = turn
    return list(joined.values())


def _opening_of(stored: Any, owner: ScopeOwner) -> PendingTurn:
    members = {name: getattr(stored, name) for name in _Opening.__struct_fields__}
    return PendingTurn(owner=owner, **members)


def _record_of(stored: Any, owner: ScopeOwner, explain_id: str | None) -> TurnRecord:
    members = {name: getattr(stored, name) for name in _Record.__struct_fields__}
    answers: list[Any] = [{} for _ in stored.nodes]
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
