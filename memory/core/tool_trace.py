"""What the tools of a turn have run so far, as rules on tools ask for it. Pure.

A trace answers questions about lists of patterns of names. It follows the lists that it was made
for, so that neither a run nor a question reads the whole trace again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

Patterns = Sequence[str]
WILDCARDS = frozenset("*?[")


class ToolRun(msgspec.Struct, frozen=True, array_like=True):
    """A call that was run. result: as the model saw it. digest: of its arguments, "" unknown."""

    name: str
    is_ok: bool = True
    result: str = ""
    digest: str = ""


def matches(name: str, patterns: Patterns) -> bool:
    """Tell whether a tool's name matches one of these patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_pattern(text: str) -> bool:
    """Tell whether a text is a pattern of names, and not one exact name."""
    return not WILDCARDS.isdisjoint(text)


class _RunsOf:
    """What has run of the tools that one list of patterns names."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._matches: dict[str, bool] = {}
        self.count = 0
        self.accepted = 0
        self.has_succeeded = False
        self.newest: tuple[ToolRun, ...] = ()

    def includes(self, name: str) -> bool:
        match = self._matches.get(name)
        if match is None:
            match = self._matches[name] = matches(name, self._patterns)
        return match

    def add_round(self, runs: Iterable[ToolRun]) -> None:
        self.newest = tuple(run for run in runs if self.includes(run.name))
        self.count += len(self.newest)
        self.has_succeeded = self.has_succeeded or any(run.is_ok for run in self.newest)


class ToolTrace:
    """The runs of one turn, round by round, and the accepted calls of the newest reply."""

    def __init__(self, followed_tools: Iterable[Patterns]) -> None:
        self._runs = {patterns: _RunsOf(patterns) for patterns in followed_tools}
        self._round_count = 0
        self._answers: dict[int, Patterns] = {}

    @property
    def has_run(self) -> bool:
        """Whether anything has run in a finished round."""
        return self._round_count > 0

    def accept(self, name: str) -> None:
        """Count a call of the newest reply, which will run."""
        for runs in self._runs.values():
            runs.accepted += runs.includes(name)

    def finish_round(self, runs: Sequence[ToolRun]) -> None:
        """Take what the accepted calls of the newest reply came to. No run: not a round."""
        for followed_runs in self._runs.values():
            followed_runs.accepted = 0
            if runs:
                followed_runs.add_round(runs)
        self._round_count += bool(runs)
        self._answers.clear()

    def remember(self, question: int, find: Callable[[], Patterns]) -> Patterns:
        """Return what `find` does, asked once after each reply."""
        if (answer := self._answers.get(question)) is None:
            answer = self._answers[question] = find()
        return answer

    def includes(self, patterns: Patterns, name: str) -> bool:
        """Tell whether a name matches one of these patterns."""
        return self._runs[patterns].includes(name)

    def has_any(self, patterns: Patterns) -> bool:
        """Tell whether a tool of these ran in a finished round, with success or not."""
        return self._runs[patterns].count > 0

    def has_succeeded(self, patterns: Patterns) -> bool:
        """Tell whether a tool of these ran with success in a finished round."""
        return self._runs[patterns].has_succeeded

    def newest(self, patterns: Patterns) -> tuple[ToolRun, ...]:
        """Return the runs of these tools in the newest finished round."""
        return self._runs[patterns].newest

    def count(self, patterns: Patterns) -> int:
        """Return how often these tools ran, accepted calls of the newest reply included."""
        runs = self._runs[patterns]
        return runs.count + runs.accepted
