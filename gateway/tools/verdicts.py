"""Whether the calls of a reply may run: the one place where rules are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from memory.session.toolbox import ToolTurn


class RuleVerdict(msgspec.Struct, frozen=True):
    """What is decided on a call. message: for the model, where it is refused. rule: by which."""

    decision: Literal["run", "refuse", "approve"] = "run"
    message: str = ""
    rule: str = ""


ALLOW = RuleVerdict()


class RunRules(Protocol):
    """Decides on the calls of one reply, by what ran before them in the turn."""

    def judge(self, names: Sequence[str], turn: ToolTurn) -> Sequence[RuleVerdict]:
        """Return one verdict for each call."""
        ...


class FixedPolicy:
    """Decides all calls alike. allows: what `toolbox.policy` says."""

    def __init__(self, *, allows: bool) -> None:
        self._allows = allows

    def judge(self, names: Sequence[str], turn: ToolTurn) -> Sequence[RuleVerdict]:
        if self._allows:
            return [ALLOW] * len(names)
        return [RuleVerdict("refuse", f"Error: {name} is not allowed here.") for name in names]
