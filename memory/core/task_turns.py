"""A user's turn as a sequence of tool calls, by which repeated tasks are recognised. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

# Of the toolbox itself, and of skills: they say nothing of what was done.
UNCOUNTED = frozenset({"result_open", "tool_search", "skill_open"})
_error = re.compile(
    r'\s*(?:\{\s*"(?:error|is_error)"\s*:(?!\s*(?:null|false|""))|error\b|traceback \()',
    re.IGNORECASE,
)


class TaskTurn(msgspec.Struct):
    """One turn of the user.

    nodes: its requests, oldest first. steps: names of the calls, in their order. is_over: it has
    its answer. has_failed: a result of its last round is an error.
    """

    conversation: int
    nodes: list[int] = []
    steps: list[str] = []
    is_over: bool = False
    has_failed: bool = False

    @property
    def digest(self) -> str:
        """A name of its sequence of calls."""
        return hashlib.sha256("\0".join(self.steps).encode("utf-8", "replace")).hexdigest()[:32]


class RepeatedTask(msgspec.Struct, frozen=True):
    """A sequence of calls that several turns have. turns: these, newest first."""

    digest: str
    steps: Sequence[str]
    turns: Sequence[TaskTurn]


class RepetitionRules(msgspec.Struct, frozen=True):
    """When a task counts as repeated: calls of a turn, and turns with the same ones."""

    min_calls: int = 3
    min_times: int = 3


def is_error(result: str) -> bool:
    """Tell whether the result of a call says that it failed."""
    return _error.match(result) is not None


def find_repeated(
    turns: Sequence[TaskTurn], rules: RepetitionRules, without: Collection[str]
) -> list[RepeatedTask]:
    """Return the tasks that were done often enough, in two conversations or more; most often first.

    turns: newest first. without: digests of sequences that are left out.
    """
    by_digest: defaultdict[str, list[TaskTurn]] = defaultdict(list)
    for turn in turns:
        if turn.is_over and not turn.has_failed and len(turn.steps) >= rules.min_calls:
            by_digest[turn.digest].append(turn)
    repeated_tasks = [
        RepeatedTask(digest, same_turns[0].steps, same_turns)
        for digest, same_turns in by_digest.items()
        if digest not in without
        and len(same_turns) >= rules.min_times
        and len({turn.conversation for turn in same_turns}) > 1
    ]
    return sorted(repeated_tasks, key=lambda task: -len(task.turns))


def settle_uses(turns: Sequence[TaskTurn], nodes: Mapping[int, int]) -> dict[int, bool]:
    """Return which uses of a skill are over, and whether their turns ended well.

    nodes: of the request that each use stands in.
    """
    by_node = {node: turn for turn in turns for node in turn.nodes}
    outcomes: dict[int, bool] = {}
    for use, node in nodes.items():
        turn = by_node.get(node)
        if turn is not None and turn.is_over:
            outcomes[use] = not turn.has_failed
    return outcomes
