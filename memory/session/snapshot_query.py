"""What a turn asks the store, of a request and the policy in force."""

from __future__ import annotations

from typing import NamedTuple

from memory.conversation.matching import RequestHistory
from memory.conversation.openings import Opening
from memory.session.request import Policy, TurnRequest
from memory.session.shared_changes import SharedChanges
from memory.stores.sql.turns.server_history import MAX_HISTORY_BYTES
from memory.stores.sql.turns.turn_reader import SnapshotQuery

# Bytes a token, more than almost any text has; limits the history that is read for a window.
WINDOW_BYTES = 6


class HashedRequest(NamedTuple):
    """A request's history, its key among its retries, and what it is like if it may begin one."""

    turn: RequestHistory
    key: bytes | None
    opening: Opening | None


def query_of(
    ask: TurnRequest, request: HashedRequest, policy: Policy, shared: SharedChanges
) -> SnapshotQuery:
    """Return what the store is asked."""
    scope = ask.scope
    opening = request.opening
    query = SnapshotQuery(scope, request.turn, policy.blocks_in(scope.project))
    query.explicit = ask.explicit
    query.request = request.key
    query.resends = ask.resends
    if ask.window:
        query.room = ask.window * WINDOW_BYTES
    else:
        query.room = MAX_HISTORY_BYTES
    query.openings = ask.tasks and opening is not None and opening.has_edges
    query.shares = shared.counts.get(scope.tenant)
    query.repeats = ask.repeats
    query.layered = scope.tenant in shared.layered
    query.general_blocks = policy.general_blocks(scope)
    return query
