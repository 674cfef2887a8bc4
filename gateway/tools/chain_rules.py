"""The rules on tools of one request: the operator's, then the agent's, over the user's turn.

Verdicts depend on the rules and on the recorded runs alone: so a retry, another worker and the next
request of the same turn come to the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.tools.own_tools import OWN_TOOLS
from gateway.tools.verdicts import ALLOW, ReplyRules, RuleVerdict
from memory import (
    MEMORY_TOOL_NAMES,
    BaseRule,
    EndsTurn,
    RequiredBeforeExit,
    RuleChain,
    RulePolicy,
    TurnEnd,
    TurnRuns,
    list_literal_names,
)
from memory.session.toolbox import ExitRules

# Rules judge these only where they name them literally; tools of the toolbox itself, never.
UNGOVERNED = MEMORY_TOOL_NAMES | OWN_TOOLS.keys()


class ToolChain:
    """The rules of one request. withholds: tools are not shown whose calls would all be refused."""

    def __init__(
        self, rules: Sequence[BaseRule], policy: RulePolicy, *, withholds: bool = False
    ) -> None:
        self._rules = rules
        self._policy = policy
        self._withholds = withholds
        self.governed_memory = list_literal_names(rules) & MEMORY_TOOL_NAMES
        self._ungoverned = UNGOVERNED - self.governed_memory
        acts = any(isinstance(rule, EndsTurn | RequiredBeforeExit) for rule in rules)
        self.exits: ExitRules | None = self if acts or withholds else None

    def begin_reply(self, runs: TurnRuns) -> ReplyRules:
        return _JudgedReply(self._chain_after(runs), self._ungoverned)

    def find_end(self, runs: TurnRuns) -> TurnEnd | None:
        return self._chain_after(runs).end

    def list_unmet(self, runs: TurnRuns) -> list[str]:
        return self._chain_after(runs).list_unmet()

    def list_withheld(self, names: Collection[str], runs: TurnRuns) -> frozenset[str]:
        if not self._withholds:
            return frozenset()
        reply = self.begin_reply(runs)
        return frozenset(name for name in names if reply.judge(name).decision == "refuse")

    def _chain_after(self, runs: TurnRuns) -> RuleChain:
        chain = RuleChain(self._rules, self._policy)
        for finished_round in runs.rounds:
            chain.finish_round([run for run in finished_round if run.name not in self._ungoverned])
        return chain


class _JudgedReply:
    """Judges the calls of one reply. ungoverned: names of tools that are not judged at all."""

    def __init__(self, chain: RuleChain, ungoverned: frozenset[str]) -> None:
        self._chain = chain
        self._ungoverned = ungoverned

    def judge(self, name: str) -> RuleVerdict:
        if name in self._ungoverned:
            return ALLOW
        verdict = self._chain.judge(name)
        rule = "policy" if verdict.rule is None else f"rules[{verdict.rule}]"
        is_named = verdict.decision != "run" or verdict.rule is not None
        return RuleVerdict(verdict.decision, verdict.message, rule if is_named else "")

    def accept(self, name: str) -> None:
        if name not in self._ungoverned:
            self._chain.accept(name)
