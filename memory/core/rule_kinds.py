"""The kinds of rules on calls of tools, and the opinion that each has on a call. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from memory.core.json_values import is_same_json, read_result, value_at
from memory.core.tool_trace import Patterns, ToolTrace

# Of one list.
MAX_PATTERNS = 100
# Names in a refusal.
MAX_LISTED = 20

Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
AnyPatterns = Annotated[tuple[Pattern, ...], msgspec.Meta(max_length=MAX_PATTERNS)]
SomePatterns = Annotated[tuple[Pattern, ...], msgspec.Meta(min_length=1, max_length=MAX_PATTERNS)]
Words = Annotated[str, msgspec.Meta(max_length=1000)]


class RuleOpinion(msgspec.Struct, frozen=True):
    """What one rule says of a call. message: the result of the call if it is denied."""

    kind: Literal["allow", "deny", "ask"]
    message: str = ""


ALLOWED = RuleOpinion("allow")
ASKING = RuleOpinion("ask")


def deny_call(name: str, text: str) -> RuleOpinion:
    return RuleOpinion("deny", f"Error: {name} {text}")


def list_names(names: Patterns) -> str:
    """Return names as a refusal lists them; "none" if there are none."""
    listed_names = ", ".join(names[:MAX_LISTED]) or "none"
    unlisted_count = len(names) - MAX_LISTED
    if unlisted_count > 0:
        return f"{listed_names} and {unlisted_count} more"
    return listed_names


class BaseRule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", omit_defaults=True
):
    """A rule of a kind that says nothing of a call."""

    LISTS: ClassVar[tuple[str, ...]] = ("tools",)

    def pattern_lists(self) -> Iterator[Patterns]:
        """Return the lists of patterns that the rule asks a trace about."""
        for member in self.LISTS:
            patterns: Patterns = getattr(self, member)
            yield patterns

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        """Return what the rule says of the next call of a reply, None if nothing."""
        return None


class _RuleAfter(BaseRule, frozen=True):
    """A rule on some tools that may hold only once a tool of `after` has run."""

    LISTS = ("tools", "after")
    tools: SomePatterns
    after: AnyPatterns = ()

    def holds(self, name: str, trace: ToolTrace) -> bool:
        if not trace.includes(self.tools, name):
            return False
        return not self.after or trace.has_any(self.after)


class Allow(_RuleAfter, frozen=True, tag="allow"):
    """Lets calls run, whatever the rules behind it say."""

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if self.holds(name, trace):
            return ALLOWED
        return None


class Deny(_RuleAfter, frozen=True, tag="deny"):
    """Refuses calls. reason: for the model."""

    reason: Words = ""

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if not self.holds(name, trace):
            return None
        return deny_call(name, f"is not allowed here. {self.reason}".rstrip())


class First(BaseRule, frozen=True, tag="first"):
    """Says which tools may be the first to run."""

    tools: SomePatterns

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if trace.has_run or trace.includes(self.tools, name):
            return None
        listed_tools = list_names(self.tools)
        return deny_call(
            name, f"may not be called yet. The first call must be one of: {listed_tools}."
        )


class After(BaseRule, frozen=True, tag="after"):
    """Lets tools run only after others have succeeded; directly: in the newest round."""

    LISTS = ("tools", "after")
    tools: SomePatterns
    after: SomePatterns
    directly: bool = False

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if not trace.includes(self.tools, name):
            return None
        if self.directly:
            has_run = any(run.is_ok for run in trace.newest(self.after))
        else:
            has_run = trace.has_succeeded(self.after)
        if has_run:
            return None
        when = "only after"
        if self.directly:
            when = "only right after"
        listed_tools = list_names(self.after)
        return deny_call(name, f"may be called {when} one of these has succeeded: {listed_tools}.")


class Children(BaseRule, frozen=True, tag="children"):
    """Says which tools may run in the round after a parent."""

    LISTS = ("tools", "parent")
    tools: SomePatterns
    parent: SomePatterns

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        parents = trace.newest(self.parent)
        if not parents or trace.includes(self.tools, name):
            return None
        return _only_after(parents[-1].name, self.tools)


def _only_after(parent: str, allowed_tools: Patterns) -> RuleOpinion:
    listed_tools = list_names(allowed_tools)
    return RuleOpinion(
        "deny", f"Error: after {parent} only these may be called now: {listed_tools}."
    )


class RuleCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tools that may run after a result; either `contains`, or `pointer` and `equals`.

    pointer: a JSON pointer (RFC 6901) into the result, read as JSON.
    """

    tools: SomePatterns
    contains: Annotated[str, msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET
    pointer: str | msgspec.UnsetType = msgspec.UNSET
    equals: Any = msgspec.UNSET

    def holds(self, result: str, document: Any) -> bool:
        """Tell whether the case is that of a result. document: the result, read as JSON."""
        if self.contains is not msgspec.UNSET:
            return self.contains in result
        assert self.pointer is not msgspec.UNSET  # noqa: S101 - a case has one of both
        return is_same_json(value_at(document, self.pointer), self.equals)


class Conditional(BaseRule, frozen=True, tag="conditional"):
    """Says which tools may run in the round after a parent, by the parent's result."""

    parent: SomePatterns
    cases: Annotated[tuple[RuleCase, ...], msgspec.Meta(max_length=100)]
    otherwise: AnyPatterns = ("*",)

    def pattern_lists(self) -> Iterator[Patterns]:
        """Return the lists of patterns that the rule asks a trace about."""
        yield self.parent
        yield self.otherwise
        for case in self.cases:
            yield case.tools

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        parents = trace.newest(self.parent)
        if not parents:
            return None
        allowed_tools = trace.remember(id(self), lambda: self._tools_after(parents[-1].result))
        if trace.includes(allowed_tools, name):
            return None
        return _only_after(parents[-1].name, allowed_tools)

    def _tools_after(self, result: str) -> Patterns:
        document = read_result(result)
        for case in self.cases:
            if case.holds(result, document):
                return case.tools
        return self.otherwise


class MaxCount(BaseRule, frozen=True, tag="max_count"):
    """Bounds how often tools run in a turn, all of them together."""

    tools: SomePatterns
    count: Annotated[int, msgspec.Meta(ge=1)]

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if not trace.includes(self.tools, name) or trace.count(self.tools) < self.count:
            return None
        return deny_call(name, f"may be called {self.count} times in a turn, and was.")


class RequiresApproval(_RuleAfter, frozen=True, tag="requires_approval"):
    """Lets calls wait for a person; the rules behind it may still refuse them."""

    def judge(self, name: str, trace: ToolTrace) -> RuleOpinion | None:
        if self.holds(name, trace):
            return ASKING
        return None


class RequiredBeforeExit(BaseRule, frozen=True, tag="required_before_exit"):
    """Names tools that are to succeed before the turn ends."""

    tools: SomePatterns

    def pattern_lists(self) -> Iterator[Patterns]:
        """Return each name as a list of its own."""
        for name in self.tools:
            yield (name,)


class EndsTurn(BaseRule, frozen=True, tag="ends_turn"):
    """Ends the turn after the round in which a tool succeeds.

    answer: the model writes it without tools, or it is the tool's result.
    """

    tools: SomePatterns
    answer: Literal["model", "result"] = "model"


KINDS: Mapping[str, type[BaseRule]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        Allow,
        Deny,
        First,
        After,
        Children,
        Conditional,
        MaxCount,
        RequiresApproval,
        RequiredBeforeExit,
        EndsTurn,
    )
}
