"""Refuses what a turn writes for a user who was erased after it began, in an agent's own memory.

There the scope is the agent's, so its generation tells nothing of those who speak to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from memory.errors import ErasedMeanwhile
from memory.ids import time_of
from memory.scope import owner_key
from memory.session.context import TurnContext
from memory.stores.sql.rows import scopes
from memory.stores.sql.turns.turn_rows import TurnRecord


def speaker_check(turn: TurnContext) -> Callable[[Connection], None] | None:
    """Return what raises ErasedMeanwhile in the transaction of a write; None where none is due."""
    if turn.ask.said_by is None:
        return None
    scope = turn.ask.scope
    owner = owner_key(scope.secret, scope.tenant, turn.ask.said_by)
    return partial(_refuse_erased, owner=owner, began=time_of(turn.identity.node_id))


def check_speaker_of(conn: Connection, record: TurnRecord) -> None:
    """Raise ErasedMeanwhile for the record of a turn whose speaker was erased after it began."""
    if record.said_by is None:
        return
    scope = record.owner.scope
    turn = record.nodes[0].turn
    owner = owner_key(scope.secret, scope.tenant, record.said_by)
    _refuse_erased(conn, owner, time_of(turn))


def _refuse_erased(conn: Connection, owner: bytes, began: float) -> None:
    if scopes.erased_at(conn, [owner]).get(owner, 0.0) >= began:
        raise ErasedMeanwhile(scopes.ERASED_MEANWHILE)
