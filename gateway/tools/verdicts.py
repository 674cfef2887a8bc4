"""Whether the calls of a reply may run: the one place where rules are asked."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from memory import TurnRuns
from memory.session.toolbox import ExitRules


class RuleVerdict(msgspec.Struct, frozen=True):
    """What is decided on a call. message: for the model, where it is refused. rule: by which."""

    decision: Literal["run", "refuse", "approve"] = "run"
    message: str = ""
    rule: str = ""


ALLOW = RuleVerdict()


class ReplyRules(Protocol):
    """Decides on the calls of one reply, in their order."""

    def judge(self, name: str) -> RuleVerdict:
        """Return what is decided on the next call."""
        ...

    def accept(self, name: str) -> None:
        """Take note that the call that was just judged will run, or waits for a person."""
        ...


class RunRules(Protocol):
    """The rules of one request.

    exits: those that act on the turn itself, None for none. governed_memory: names of memory tools
    that they judge too.
    """

    exits: ExitRules | None
    governed_memory: frozenset[str]

    def begin_reply(self, runs: TurnRuns) -> ReplyRules:
        """Return what decides on the calls of a reply. runs: of the user's turn before it."""
        ...


class FixedPolicy:
    """Decides all calls alike. allows: what `toolbox.policy` says."""

    exits: ExitRules | None = None
    governed_memory = frozenset[str]()

    def __init__(self, *, allows: bool) -> None:
        self._allows = allows

    def begin_reply(self, runs: TurnRuns) -> ReplyRules:
        return self

    def judge(self, name: str) -> RuleVerdict:
        if self._allows:
            return ALLOW
        return RuleVerdict("refuse", f"Error: {name} is not allowed here.")

    def accept(self, name: str) -> None:
        """Nothing: no decision depends on what ran."""
