"""The rules on tools of one request: the operator's, then the agent's, over the turn's trace.

The trace is read from the exchange each time, and verdicts depend on it alone: so a retry, another
worker and the next request of the same turn come to the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from gateway.tools.past_runs import PastCall, read_exchange, read_round
from gateway.tools.verdicts import RuleVerdict
from memory import (
    BaseRule,
    RuleChain,
    RulePolicy,
    ToolRun,
    ToolVerdict,
    TurnEnd,
    list_literal_names,
)

ERROR = "Error: "
# Results of calls that were not run, though no rule refused them.
NOT_RUN = re.compile(
    r"Error: (?:a person refused this call\.|nobody decided on this call within |"
    r"this call needs a person's approval|there is no tool |arguments must be an object|"
    r"the arguments of \S+ (?:have|are not|must be)|\d+ calls of tools were made in this turn|"
    r"the budget has no room|\S+ (?:is no longer available|was already called twice|was not run))"
)


class PastRounds(Protocol):
    """What ran before a reply: finished rounds of this request, and hidden exchanges before."""

    @property
    def rounds(self) -> Sequence[Any]: ...

    @property
    def hidden(self) -> Sequence[Any]: ...


class ToolChain(msgspec.Struct, frozen=True):
    """The rules of one request.

    governed: names of the operator's tools. owned: names of all calls that are run here, those of
    memory tools too.
    """

    rules: Sequence[BaseRule]
    policy: RulePolicy
    governed: frozenset[str]
    owned: frozenset[str]

    def judge(self, names: Sequence[str], turn: PastRounds) -> list[RuleVerdict]:
        """Return one verdict for each call of a reply, in order; see `RunRules`."""
        return [_to_rule_verdict(verdict) for verdict in self.solve(names, turn)]

    def solve(self, names: Sequence[str], past: PastRounds) -> list[ToolVerdict]:
        """Return what the solver says of each call of a reply, in order."""
        chain = self._chain_after(past)
        literal = list_literal_names(self.rules)
        verdicts = []
        for name in names:
            if name not in self.governed and name not in literal:
                verdicts.append(ToolVerdict("run"))
                continue
            verdict = chain.judge(name)
            if verdict.decision != "refuse":
                chain.accept(name)
            verdicts.append(verdict)
        return verdicts

    def find_end(self, past: PastRounds) -> TurnEnd | None:
        """Return how the turn ends after its newest round; None while it goes on."""
        return self._chain_after(past).end

    def list_unmet(self, past: PastRounds) -> list[str]:
        """Return what is required before the turn ends, and has not succeeded."""
        return self._chain_after(past).list_unmet()

    def _chain_after(self, past: PastRounds) -> RuleChain:
        chain = RuleChain(self.rules, self.policy)
        governed = self.governed | list_literal_names(self.rules)
        earlier: list[list[PastCall]] = read_exchange(past.hidden)
        earlier += [
            read_round(entry["reply"], _texts(entry["results"]), self.owned)
            for entry in past.rounds
        ]
        for calls in earlier:
            chain.finish_round(_runs_of(chain, calls, governed))
        return chain


def _to_rule_verdict(verdict: ToolVerdict) -> RuleVerdict:
    rule = "policy" if verdict.rule is None else f"rules[{verdict.rule}]"
    named = rule if verdict.decision != "run" or verdict.rule is not None else ""
    return RuleVerdict(verdict.decision, verdict.message, named)


def _runs_of(
    chain: RuleChain, calls: Iterable[PastCall], governed: frozenset[str]
) -> list[ToolRun]:
    """Return which calls of an earlier round were run: those that the rules let run, then."""
    runs = []
    for call in calls:
        if call.result is None or call.name not in governed:
            continue
        if chain.judge(call.name).decision == "refuse":
            continue
        chain.accept(call.name)
        if not NOT_RUN.match(call.result):
            runs.append(ToolRun(call.name, not call.result.startswith(ERROR), call.result))
    return runs


def _texts(results: Iterable[Any]) -> list[str]:
    """Return results as texts; one with pictures is its text."""
    return [r if isinstance(r, str) else str(getattr(r, "text", "") or "") for r in results]
