"""The rules on tools of an agent, as a Letta client writes them and is shown them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.letta.errors import Unprocessable
from gateway.wire.chat import Json
from memory import InvalidRule, convert_letta_rules, parse_rules, show_letta_rules

# Letta's names of tools that are our own under another name.
OUR_NAMES = {"memory_insert": "core_memory_append", "memory_replace": "core_memory_replace"}
# The client need not send a rule's type: these members tell it.
TELLING = {
    "max_count_limit": "max_count_per_step",
    "child_output_mapping": "conditional",
    "children": "constrain_child_tools",
}
# Which does nothing.
NO_KIND = "continue_loop"
PREFILLED = ("args", "child_arg_nodes")


def check_rules(rules: Sequence[Any]) -> list[dict[str, Any]]:
    """Return tool rules as they are shown again. Raises Unprocessable."""
    for index, rule in enumerate(rules):
        if not (isinstance(rule, dict) and isinstance(rule.get("tool_name"), str)):
            raise Unprocessable(
                f"`tool_rules.{index}` must be an object with a `tool_name`.", param="tool_rules"
            )
        if any(rule.get(member) for member in PREFILLED):
            raise Unprocessable(
                f"`tool_rules.{index}` prefills arguments, which is not supported here.",
                param="tool_rules",
                code="not_supported",
            )
    return list(rules)


def profile_rules(rules: Sequence[Any]) -> list[Json]:
    """Return tool rules as a profile has them. Raises Unprocessable."""
    converted = convert_letta_rules([_with_our_names(rule) for rule in check_rules(rules)])
    try:
        parse_rules(converted)
    except InvalidRule as e:
        raise Unprocessable(f"`tool_rules` cannot be used: {e}.", param="tool_rules") from e
    return converted


def shown_rules(given_rules: Sequence[Json], rules: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return an agent's rules as Letta's: as they were given, unless the profile has others since.

    rules: of the profile.
    """
    try:
        is_as_given = profile_rules(given_rules) == list(rules)
    except Unprocessable:
        is_as_given = False
    if is_as_given:
        return list(given_rules)
    return show_letta_rules(rules)


def _with_our_names(rule: Json) -> Json:
    """Return a rule with the names that its tools have here."""
    renamed_rule = {**rule, "tool_name": _our_name(rule["tool_name"])}
    if not rule.get("type"):
        renamed_rule["type"] = next(
            (kind for name, kind in TELLING.items() if rule.get(name)), NO_KIND
        )
    if isinstance(children := rule.get("children"), list):
        renamed_rule["children"] = [_our_name(name) for name in children]
    if isinstance(mapping := rule.get("child_output_mapping"), dict):
        renamed_rule["child_output_mapping"] = {k: _our_name(name) for k, name in mapping.items()}
    if rule.get("default_child"):
        renamed_rule["default_child"] = _our_name(rule["default_child"])
    return renamed_rule


def _our_name(name: Any) -> Any:
    if isinstance(name, str):
        return OUR_NAMES.get(name, name)
    return name
