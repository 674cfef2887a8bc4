"""How the rules on tools act on the turn itself: when it ends, and what it needs before."""

from __future__ import annotations

from collections.abc import Collection

from memory.core.tool_rules import TurnEnd
from memory.core.turn_runs import TurnRuns
from memory.session.context import TurnContext
from memory.session.toolbox import ExitRules, Toolbox
from memory.session.turn_trace import note_runs, runs_before


class TurnExits:
    """The rules of one request that act on its turn."""

    def __init__(self, turn: TurnContext, toolbox: Toolbox, rules: ExitRules) -> None:
        self._turn = turn
        self._toolbox = toolbox
        self._rules = rules

    def find_end(self) -> TurnEnd | None:
        """Return how the turn ends now; None while it goes on."""
        return self._rules.find_end(self._runs)

    def list_unmet(self) -> list[str]:
        """Return the names that are to succeed before the turn ends, and have not, sorted."""
        return self._rules.list_unmet(self._runs)

    def list_due(self, names: Collection[str]) -> list[str]:
        """Return which of those the model is told to call; none once it was told in this turn.

        names: names of the memory tools and others that the request shows.
        """
        runs = self._runs
        if runs.is_reminded:
            return []
        callable_names = {*self._toolbox.names, *names}
        return [name for name in self._rules.list_unmet(runs) if name in callable_names]

    def list_withheld(self, names: Collection[str]) -> frozenset[str]:
        """Return which of the tools offered are not shown in the next round."""
        return self._rules.list_withheld(names, self._runs)

    def note_reminder(self) -> None:
        """Note that the model was told: it is told once in a turn of the user."""
        self._turn.progress.is_reminded = True
        note_runs(self._turn)

    @property
    def _runs(self) -> TurnRuns:
        return runs_before(self._turn, self._turn.progress.rounds)
