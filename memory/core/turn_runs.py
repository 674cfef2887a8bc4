"""What the tools of one user's turn ran so far, as it is kept between its requests. Pure.

A turn of the user is one request or several: the client sends the results of its own tools, and the
rules go on judging by what ran before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from memory.conversation.messages import Json
from memory.core.tool_trace import ToolRun


class TurnRuns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The runs of finished rounds, oldest round first.

    is_reminded: the model was told once what it has to call before it ends.
    """

    rounds: tuple[tuple[ToolRun, ...], ...] = ()
    is_reminded: bool = False

    def add_rounds(self, rounds: Iterable[Sequence[ToolRun]]) -> TurnRuns:
        """Return these runs with later rounds behind them; a round without a run is none."""
        later = (tuple(runs) for runs in rounds)
        return TurnRuns((*self.rounds, *filter(None, later)), self.is_reminded)

    def to_json(self) -> Json | None:
        """Return what is stored; None for nothing.

        Rules read the results of the newest round alone, so those of earlier ones are left out.
        """
        if not self.rounds and not self.is_reminded:
            return None
        before = [tuple(_without_result(run) for run in runs) for runs in self.rounds[:-1]]
        kept = TurnRuns((*before, *self.rounds[-1:]), self.is_reminded)
        stored: Json = msgspec.to_builtins(kept)
        return stored


NO_RUNS = TurnRuns()


def read_runs(stored: Any) -> TurnRuns:
    """Return stored runs; none where nothing is stored, or nothing that can be read."""
    if not stored:
        return NO_RUNS
    try:
        return msgspec.convert(stored, TurnRuns)
    except msgspec.ValidationError:
        return NO_RUNS


def runs_of_round(entry: Mapping[str, Any]) -> list[ToolRun]:
    """Return the runs of a finished round. entry: its reply, its results, and its runs.

    A run stands at the place of its call: its name, whether it succeeded, and the digest of its
    arguments. None stands for a call that was refused, or is not over.
    """
    return [
        ToolRun(run[0], bool(run[1]), result, str(run[2]) if len(run) > 2 else "")
        for run, result in zip(entry.get("runs") or (), entry["results"], strict=False)
        if run is not None and result is not None
    ]


def _without_result(run: ToolRun) -> ToolRun:
    if run.result:
        return ToolRun(run.name, run.is_ok, "", run.digest)
    return run
