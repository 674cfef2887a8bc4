"""The rules on tools that an agent of a Letta client has, as rules of ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.conversation.messages import Json
from memory.core.tool_trace import is_pattern

# Of the results that Letta compares.
MESSAGE = "/message"
# Of these, the last two are the same here.
LETTA_KINDS = (
    "run_first",
    "exit_loop",
    "continue_loop",
    "constrain_child_tools",
    "parent_last_tool",
    "max_count_per_step",
    "conditional",
    "required_before_exit",
    "requires_approval",
)


def convert_letta_rules(rules: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return Letta's rules as ours, unchecked: `parse_rules` refuses what is wrong in them.

    All of kind `run_first` are one rule, in the place of the first of them.
    """
    first_tools = [rule["tool_name"] for rule in rules if rule.get("type") == "run_first"]
    converted: list[Json] = []
    has_first_rule = False
    for rule in rules:
        if rule.get("type") != "run_first":
            converted += _convert(rule)
        elif not has_first_rule:
            converted.append({"type": "first", "tools": first_tools})
            has_first_rule = True
    return converted


def _convert(rule: Mapping[str, Any]) -> list[Json]:
    kind = rule.get("type")
    name = rule["tool_name"]
    children = rule.get("children")
    match kind:
        case "continue_loop":
            return []
        case "exit_loop":
            return [{"type": "ends_turn", "tools": [name], "answer": "result"}]
        case "constrain_child_tools":
            return [_after_parent(name, children)]
        case "parent_last_tool":
            after_rule = {"type": "after", "tools": children, "after": [name], "directly": True}
            return [*([after_rule] if children else []), _after_parent(name, children)]
        case "max_count_per_step":
            return [{"type": "max_count", "tools": [name], "count": rule.get("max_count_limit")}]
        case "conditional":
            return [_convert_conditional(rule)]
    return [{"type": kind, "tools": [name]}]


def _after_parent(parent: str, children: Any) -> Json:
    # Nothing may be called after it.
    if not children:
        return {"type": "conditional", "parent": [parent], "cases": [], "otherwise": []}
    return {"type": "children", "parent": [parent], "tools": children}


def _convert_conditional(rule: Mapping[str, Any]) -> Json:
    mapping = rule.get("child_output_mapping")
    cases: Any = mapping
    if isinstance(mapping, Mapping):
        cases = [
            {"pointer": MESSAGE, "equals": value, "tools": [child]}
            for value, child in mapping.items()
        ]
    otherwise = ["*"]
    if rule.get("require_output_mapping"):
        otherwise = []
    elif rule.get("default_child"):
        otherwise = [rule["default_child"]]
    return {
        "type": "conditional",
        "parent": [rule["tool_name"]],
        "cases": cases or [],
        "otherwise": otherwise,
    }


def show_letta_rules(rules: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return rules of ours as Letta's, as far as Letta has such: about exact names alone."""
    shown: list[Json] = []
    for rule in rules:
        named = [*rule.get("tools", ()), *rule.get("parent", ())]
        if not any(map(is_pattern, named)):
            shown += _show(rule)
    return shown


def _show(rule: Mapping[str, Any]) -> list[Json]:
    tools = list(rule.get("tools", ()))
    match rule["type"]:
        case "first":
            return [{"type": "run_first", "tool_name": name} for name in tools]
        case "ends_turn":
            return [{"type": "exit_loop", "tool_name": name} for name in tools]
        case "max_count":
            count = {"type": "max_count_per_step", "max_count_limit": rule["count"]}
            if len(tools) == 1:
                return [{**count, "tool_name": tools[0]}]
            return []
        case "children":
            kind = {"type": "constrain_child_tools", "children": tools}
            return [{**kind, "tool_name": name} for name in rule["parent"]]
        case "required_before_exit" | "requires_approval":
            return [{"type": rule["type"], "tool_name": name} for name in tools]
    return []
