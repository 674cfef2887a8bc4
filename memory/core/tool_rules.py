"""Rules on calls of tools: which run, which wait for a person, and when a turn ends. Pure.

The rules are one ordered chain. Each has an opinion on a call, or none; the first that allows or
denies decides, and the policy decides at the end. A verdict depends on the rules and on the runs of
the turn, and on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from memory.core.json_values import MAX_DEPTH, is_deep, is_pointer
from memory.core.rule_kinds import (
    KINDS,
    BaseRule,
    Conditional,
    EndsTurn,
    RequiredBeforeExit,
    RuleCase,
    deny_call,
)
from memory.core.tool_trace import ToolRun, ToolTrace, is_pattern

RuleDecision = Literal["run", "refuse", "approve"]
RulePolicy = Literal["allow", "deny"]
MAX_RULES = 100
# Of all rules together.
MAX_CASES = 100
NOT_ALLOWED = "is not allowed here."
ENDING = f"{NOT_ALLOWED} The turn is ending: answer in text."


class ToolVerdict(msgspec.Struct, frozen=True):
    """What is to happen with a call.

    rule: the index of the rule that decided, None for the policy. message: the result of a call
    that is refused.
    """

    decision: RuleDecision
    rule: int | None = None
    message: str = ""


class TurnEnd(msgspec.Struct, frozen=True):
    """That a tool has run which ends the turn. rule: its index. result: of that run."""

    rule: int
    answer: Literal["model", "result"]
    result: str


class RuleChain:
    """Judges the calls of one turn, reply by reply.

    `judge` is asked about each call of a reply in order, `accept` is told which of them will run,
    and `finish_round` what came of those.
    """

    def __init__(self, rules: Sequence[BaseRule], policy: RulePolicy = "allow") -> None:
        self._rules = rules
        self._policy = policy
        self._trace = ToolTrace(patterns for rule in rules for patterns in rule.pattern_lists())
        self._end: TurnEnd | None = None

    @property
    def end(self) -> TurnEnd | None:
        """How the turn ends after the newest finished round; None while it goes on."""
        return self._end

    def list_unmet(self) -> list[str]:
        """Return the names that are to succeed before the turn ends, and have not, sorted."""
        required = {
            patterns
            for rule in self._rules
            if isinstance(rule, RequiredBeforeExit)
            for patterns in rule.pattern_lists()
        }
        return sorted(names[0] for names in required if not self._trace.has_succeeded(names))

    def judge(self, name: str) -> ToolVerdict:
        """Return what is to happen with a call of this name, the next one of the reply."""
        if self._end is not None:
            return ToolVerdict("refuse", self._end.rule, deny_call(name, ENDING).message)
        is_asking = False
        for index, rule in enumerate(self._rules):
            opinion = rule.judge(name, self._trace)
            if opinion is None:
                continue
            if opinion.kind == "deny":
                return ToolVerdict("refuse", index, opinion.message)
            if opinion.kind == "allow":
                return ToolVerdict("approve" if is_asking else "run", index)
            is_asking = True
        if self._policy == "deny":
            return ToolVerdict("refuse", None, deny_call(name, NOT_ALLOWED).message)
        return ToolVerdict("approve" if is_asking else "run")

    def accept(self, name: str) -> None:
        """Count a call of the newest reply that will run, or that waits for a person."""
        self._trace.accept(name)

    def finish_round(self, runs: Sequence[ToolRun]) -> None:
        """Take what the accepted calls of the newest reply came to."""
        self._trace.finish_round(runs)
        for index, rule in enumerate(self._rules):
            if self._end is None and isinstance(rule, EndsTurn):
                ending = [run for run in self._trace.newest(rule.tools) if run.is_ok]
                if ending:
                    self._end = TurnEnd(index, rule.answer, ending[-1].result)


def list_literal_names(rules: Iterable[BaseRule]) -> frozenset[str]:
    """Return the names that rules name without a pattern: of a memory tool, it is governed."""
    return frozenset(
        text
        for rule in rules
        for patterns in rule.pattern_lists()
        for text in patterns
        if not is_pattern(text)
    )


class InvalidRule(ValueError):
    """A rule that cannot be used. path: below the list, such as `[0].count`."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.path = path
        self.text = text


MEMBER_FAULT = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


def parse_rules(rule_values: object) -> tuple[BaseRule, ...]:
    """Return rules as they are written, in a list of objects. Raises InvalidRule."""
    if not isinstance(rule_values, list | tuple):
        raise InvalidRule("", "rules must be a list of objects")
    if len(rule_values) > MAX_RULES:
        raise InvalidRule(
            "", f"there are {len(rule_values)} rules; at most {MAX_RULES} are allowed"
        )
    rules = tuple(_parse_rule(f"[{i}]", rule) for i, rule in enumerate(rule_values))
    case_count = sum(len(rule.cases) for rule in rules if isinstance(rule, Conditional))
    if case_count > MAX_CASES:
        raise InvalidRule("", f"there are {case_count} cases; at most {MAX_CASES} are allowed")
    return rules


def _parse_rule(path: str, rule_value: Any) -> BaseRule:
    if not isinstance(rule_value, dict):
        raise InvalidRule(path, "a rule must be an object with a `type`")
    if "type" not in rule_value:
        raise InvalidRule(f"{path}.type", "this is required")
    if not (isinstance(rule_value["type"], str) and rule_value["type"] in KINDS):
        raise InvalidRule(f"{path}.type", f"must be one of {', '.join(KINDS)}")
    try:
        rule: BaseRule = msgspec.convert(rule_value, KINDS[rule_value["type"]])
    except msgspec.ValidationError as e:
        raise _describe_fault(path, str(e)) from e
    if isinstance(rule, Conditional):
        for i, case in enumerate(rule.cases):
            _check_case(f"{path}.cases[{i}]", case)
    if isinstance(rule, RequiredBeforeExit):
        for name in filter(is_pattern, rule.tools):
            raise InvalidRule(f"{path}.tools", f"must be exact names of tools, not {name!r}")
    return rule


def _describe_fault(path: str, message: str) -> InvalidRule:
    """Return the error that msgspec describes in one of three forms."""
    text, separator, place = message.rpartition(" - at `$")
    if not separator:
        text = message
        place = ""
    path += place.removesuffix("`")
    fault = MEMBER_FAULT.fullmatch(text)
    if fault is None:
        return InvalidRule(path, text[:1].lower() + text[1:])
    is_unknown_member = fault[1] == "contains unknown"
    return InvalidRule(
        f"{path}.{fault[2][:60]}",
        "there is no such member" if is_unknown_member else "this is required",
    )


def _check_case(path: str, case: RuleCase) -> None:
    """Raise InvalidRule for a case that says not exactly one condition."""
    has_pointer, has_value = (x is not msgspec.UNSET for x in (case.pointer, case.equals))
    if case.contains is not msgspec.UNSET:
        if has_pointer or has_value:
            raise InvalidRule(path, "give either `contains`, or `pointer` and `equals`")
        return
    if not has_pointer or not has_value:
        raise InvalidRule(path, "give `contains`, or both `pointer` and `equals`")
    if not is_pointer(str(case.pointer)):
        raise InvalidRule(
            f"{path}.pointer",
            "must be a JSON pointer (RFC 6901): empty, or beginning with / and with ~ only as ~0 "
            "or ~1",
        )
    if is_deep(case.equals):
        raise InvalidRule(f"{path}.equals", f"is nested deeper than {MAX_DEPTH}")
