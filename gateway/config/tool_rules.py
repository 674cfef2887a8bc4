"""Rules on calls of tools, as `[toolbox] rules` and a profile's `tool_rules` have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory import BaseRule, InvalidRule, parse_rules

UNREADABLE = "The rules of this agent cannot be read; its operator must correct them."


def check_rules(
    rules: Sequence[Mapping[str, Any]], path: str = "rules"
) -> Sequence[Mapping[str, Any]]:
    """Return rules as they are written. path: of the list. Raises ValueError."""
    try:
        parse_rules(rules)
    except InvalidRule as e:
        raise ValueError(f"{path}{e.path}: {e.text}") from e
    return rules


def read_stored_rules(rules: Sequence[Mapping[str, Any]]) -> tuple[BaseRule, ...]:
    """Return the rules of a profile that was stored.

    A profile may be older than these checks. What cannot be read refuses every call: the rules
    were written to forbid something.
    """
    try:
        return parse_rules(rules)
    except InvalidRule:
        return parse_rules([{"type": "deny", "tools": ["*"], "reason": UNREADABLE}])
