"""How a plain turn is written: appended to the journal, or, on a server, by one statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.session.context import TurnContext
from memory.session.speaker_guard import speaker_check
from memory.stores.sql.engine.application_tables import keep_beside
from memory.stores.sql.engine.shortcut import Shortcut
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.turns import turn_statement, turn_writer
from memory.stores.sql.turns.journal import AppendedTurn, BehindJournal
from memory.stores.sql.turns.journal_entries import NO_CONVERSATION, JournalPlace, entry_of
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord
from memory.stores.sql.turns.turn_statement import ExpectedLine

# Versions that no row has.
UNKNOWN = (-1, -1)
# The conversation's newest node; blocks as they are left.
Recorded = tuple[int, dict[str, CoreBlock]]


def opening_of(
    turn: TurnContext, opening: PendingTurn
) -> tuple[BehindJournal[int], Shortcut[int] | None]:
    """Return what writes a turn's request, and its shortcut if it may have one."""
    line = _expected_line(turn)
    if line is None:
        return _append_opening(turn, opening), None
    build = partial(turn_statement.open_turn, opening, line)
    shortcut = Shortcut(build, lambda _: line.scope_id)

    def write(conn: Connection) -> int:
        node = opening.node.id
        if shortcut.is_doubtful and turn_statement.is_written(conn, node, answered=False):
            return line.scope_id
        return turn_writer.open_turn(conn, opening)

    return BehindJournal(turn.services.db.journal, write), shortcut


def record_of(
    turn: TurnContext, record: TurnRecord, opening: PendingTurn | None
) -> tuple[BehindJournal[Recorded], Shortcut[Recorded] | None]:
    """Return what writes a turn's answers, and its shortcut if it may have one.

    opening: the request, if not written before.
    """
    line = None if turn.attempt.edited or record.delivered else _expected_line(turn)
    shortcut = None
    if line is not None:
        build = partial(turn_statement.record, record, opening, line)
        shortcut = Shortcut(build, partial(_tell_recorded, turn, record, line.scope_id))

    def write(conn: Connection) -> Recorded:
        node = record.nodes[0]
        is_doubtful = shortcut is not None and shortcut.is_doubtful
        if is_doubtful and turn_statement.is_written(conn, node.id, answered=True):
            record.versions = UNKNOWN
            return node.turn, turn.snapshot.blocks
        head = turn_writer.record(conn, record, opening)
        turn.progress.scope_id = record.scope_id
        keep_beside(conn, turn.services.db.application_tables, record.beside)
        return head, _blocks(conn, turn)

    return _append_record(turn, record, opening, write), shortcut


def _append_opening(turn: TurnContext, opening: PendingTurn) -> AppendedTurn[int]:
    """Return what appends a turn's request to the journal."""
    place = _journal_place(turn)
    entry = None
    if place is not None and not opening.large_bodies:
        entry = entry_of(place, max(place.ends, 0), opening, None)

    def write(conn: Connection) -> int:
        return turn_writer.open_turn(conn, opening)

    journal = turn.services.db.journal
    scope = turn.ask.scope.key
    turn_append = AppendedTurn(journal, write, scope, entry, lambda scope_id: scope_id)
    if turn.ask.said_by is not None:
        turn_append.check = speaker_check(turn)
    return turn_append


def _append_record(
    turn: TurnContext,
    record: TurnRecord,
    opening: PendingTurn | None,
    write: Callable[[Connection], Recorded],
) -> AppendedTurn[Recorded]:
    """Return what appends a turn's answers to the journal, with its request unless that is there.

    Of a conversation that another turn has moved on, and of a turn with edits or with rows of the
    application, nothing is appended.
    """
    place = _journal_place(turn)
    entry = None
    is_large = record.large_bodies or (opening is not None and opening.large_bodies)
    head = record.nodes[0].turn
    is_plain = not (is_large or record.beside or record.delivered or turn.attempt.edited)
    keeps_line = turn_statement.keeps_the_line(record, turn.identity.conversation)
    if place is not None and is_plain and keeps_line:
        entry = entry_of(place, head, opening, record)

    def tell_appended(scope_id: int) -> Recorded:
        record.scope_id = turn.progress.scope_id = scope_id
        return head, turn.snapshot.blocks

    journal = turn.services.db.journal
    scope = turn.ask.scope.key
    turn_append = AppendedTurn(journal, write, scope, entry, tell_appended)
    if turn.ask.said_by is not None:
        turn_append.check = speaker_check(turn)
    return turn_append


def _journal_place(turn: TurnContext) -> JournalPlace | None:
    """Return where the turn is appended; None if it is written at once."""
    identity = turn.identity
    scope_id = turn.progress.scope_id
    db = turn.services.db
    conversation = identity.conversation
    is_found = conversation is turn.snapshot.conversation
    # Another turn may have made a named one that was not there.
    is_sure = is_found or not conversation.explicit
    if db.is_shared or turn.store.heavy or identity.adopted or not is_sure:
        return None
    is_there = is_found or turn.progress.opened
    if is_there:
        ends = conversation.head or 0
    else:
        ends = NO_CONVERSATION
    return JournalPlace(scope_id, conversation.id, ends)


def _tell_recorded(
    turn: TurnContext, record: TurnRecord, scope_id: int, row: Sequence[Any]
) -> Recorded:
    record.scope_id = scope_id
    record.versions = (row[0], row[1])
    return record.nodes[0].turn, turn.snapshot.blocks


def _blocks(conn: Connection, turn: TurnContext) -> dict[str, CoreBlock]:
    """Return the blocks as the turn leaves them."""
    block_set = BlockSet(turn.progress.scope_id, turn.snapshot.defaults)
    return turn.attempt.blocks(conn, block_set, turn.snapshot.blocks)


def _expected_line(turn: TurnContext) -> ExpectedLine | None:
    """Return the conversation as the turn found it; None if only a transaction can write it."""
    identity = turn.identity
    lock = turn.store.lock
    scope_id = turn.progress.scope_id
    conversation = identity.conversation
    # Another turn may have made a named one that was not there.
    is_known = conversation is turn.snapshot.conversation or not conversation.explicit
    if not turn.services.db.is_shared or turn.store.heavy or identity.adopted or not is_known:
        return None
    if scope_id is None or not isinstance(lock, str) or turn.ask.said_by is not None:
        return None
    version = conversation.version + turn.progress.opened
    return ExpectedLine(lock, scope_id, conversation, version)
