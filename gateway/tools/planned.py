"""Settings that are accepted and have no effect in this version: they are told at the start."""

from __future__ import annotations

from gateway.config.settings import Settings

PLANNED_RULES = ("required_before_exit", "ends_turn")


def list_planned(settings: Settings) -> list[str]:
    """Return a line for each setting that is set and has no effect yet, with its path."""
    lines = []
    if settings.toolbox.withhold == "schema":
        lines.append('toolbox.withhold = "schema": refused calls are told so, as with "result"')
    lines += [
        f"toolbox.rules[{i}]: rules of type {rule['type']} do not act in turns"
        for i, rule in enumerate(settings.toolbox.rules)
        if rule.get("type") in PLANNED_RULES
    ]
    lines += [
        f"tools.{name}.stand_in: searches of vendors stay theirs"
        for name, entry in settings.tools.items()
        if getattr(entry, "stand_in", False)
    ]
    for name, agent in settings.agents.items():
        lines += _list_planned_of_agent(f"agents.{name}", agent.tool_rules)
        lines += [
            f"agents.{name}.{member}: no agent sends messages or asks"
            for member in ("may_message", "may_ask")
            if getattr(agent, member)
        ]
    return lines


def _list_planned_of_agent(path: str, rules: object) -> list[str]:
    return [
        f"{path}.tool_rules[{i}]: rules of type {rule['type']} do not act in turns"
        for i, rule in enumerate(rules if isinstance(rules, tuple) else ())
        if rule.get("type") in PLANNED_RULES
    ]
