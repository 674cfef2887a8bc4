"""What ran in the user's turn that a request is part of: before it, and in it so far."""

from __future__ import annotations

from collections.abc import Sequence

from memory.conversation.messages import Json
from memory.core.turn_runs import NO_RUNS, TurnRuns, read_runs, runs_of_round
from memory.session.context import TurnContext


def runs_before(turn: TurnContext, rounds: Sequence[Json]) -> TurnRuns:
    """Return what ran in the user's turn up to these rounds of the request.

    It begins with the newest message of the user, which may stand in an earlier request.
    """
    node = turn.snapshot.past.node
    is_continued = node is not None and node.runs is not None and not turn.is_new_message
    if is_continued and node is not None:
        earlier = read_runs(node.runs)
    else:
        earlier = NO_RUNS
    if turn.progress.is_reminded:
        earlier = TurnRuns(earlier.rounds, is_reminded=True)
    return earlier.add_rounds(map(runs_of_round, rounds))


def note_runs(turn: TurnContext) -> None:
    """Note what is stored beside the answer, for the next request of the user's turn."""
    turn.progress.runs = runs_before(turn, turn.progress.rounds).to_json()
