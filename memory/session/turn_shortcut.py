"""The one statement that writes a plain turn where the store is a server's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from memory.core.blocks import CoreBlock
from memory.session.context import TurnContext
from memory.stores.sql import turn_statement, turn_writer
from memory.stores.sql.application_tables import keep_beside
from memory.stores.sql.blocks import BlockSet
from memory.stores.sql.shortcut import Shortcut
from memory.stores.sql.turn_rows import PendingTurn, TurnRecord
from memory.stores.sql.turn_statement import ExpectedLine

UNKNOWN = (-1, -1)  # versions that no row has
Recorded = tuple[
    int, dict[str, CoreBlock]
]  # the conversation's newest node; blocks as they are left


def opening_of(
    turn: TurnContext, opening: PendingTurn
) -> tuple[Callable[[Connection], int], Shortcut[int] | None]:
    """Return what writes a turn's request, and its shortcut if it may have one."""
    line = _expected_line(turn)
    if line is None:
        return lambda conn: turn_writer.open_turn(conn, opening), None
    build = partial(turn_statement.open_turn, opening, line)
    shortcut = Shortcut(build, lambda _: line.scope_id)

    def write(conn: Connection) -> int:
        node = opening.node.id
        if shortcut.is_doubtful and turn_statement.is_written(conn, node, answered=False):
            return line.scope_id
        return turn_writer.open_turn(conn, opening)

    return write, shortcut


def record_of(
    turn: TurnContext, record: TurnRecord, opening: PendingTurn | None
) -> tuple[Callable[[Connection], Recorded], Shortcut[Recorded] | None]:
    """Return what writes a turn's answers, and its shortcut if it may have one.

    opening: the request, if not written before.
    """
    line = None if turn.attempt.edited else _expected_line(turn)
    shortcut = None
    if line is not None:
        build = partial(turn_statement.record, record, opening, line)
        shortcut = Shortcut(build, partial(_tell_recorded, turn, record, line.scope_id))

    def write(conn: Connection) -> Recorded:
        node = record.nodes[0]
        doubtful = shortcut is not None and shortcut.is_doubtful
        if doubtful and turn_statement.is_written(conn, node.id, answered=True):
            record.versions = UNKNOWN
            return node.turn, turn.snapshot.blocks
        head = turn_writer.record(conn, record, opening)
        keep_beside(conn, turn.services.db.application_tables, record.beside)
        return head, _blocks(conn, turn)

    return write, shortcut


def _tell_recorded(
    turn: TurnContext, record: TurnRecord, scope_id: int, row: Sequence[Any]
) -> Recorded:
    record.scope_id, record.versions = scope_id, (row[0], row[1])
    return record.nodes[0].turn, turn.snapshot.blocks


def _blocks(conn: Connection, turn: TurnContext) -> dict[str, CoreBlock]:
    """Return the blocks as the turn leaves them."""
    shelf = BlockSet(turn.progress.scope_id, turn.snapshot.defaults)
    return turn.attempt.blocks(conn, shelf, turn.snapshot.blocks)


def _expected_line(turn: TurnContext) -> ExpectedLine | None:
    """Return the conversation as the turn found it; None if only a transaction can write it."""
    identity, lock, scope_id = turn.identity, turn.store.lock, turn.progress.scope_id
    conversation = identity.conversation
    # Another turn may have made a named one that was not there.
    known = conversation is turn.snapshot.conversation or not conversation.explicit
    if not turn.services.db.is_shared or turn.store.heavy or identity.adopted or not known:
        return None
    if scope_id is None or not isinstance(lock, str):
        return None
    version = conversation.version + turn.progress.opened
    return ExpectedLine(lock, scope_id, conversation, version)
