"""Format what the memory did for one answer. Pure."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 110
MISSING = ["(what the memory did is unknown: the explain record could not be read)"]


def tool_lines(record: dict[str, Any] | None) -> list[str]:
    """Return one line for each memory tool call of an explain record, in order."""
    if record is None:
        return MISSING
    return [
        f"{call['name']}({arguments(call.get('arguments'))})" for call in record.get("tools", [])
    ]


def arguments(value: Any) -> str:
    """Return a call's arguments in readable form, cut to one line."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return short(value)
    if not isinstance(value, dict):
        return short(str(value))
    return short(", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in value.items()))


def printable(text: str) -> str:
    """Return a foreign text as a terminal may show it, on one line."""
    return "".join(c if c.isprintable() else "?" for c in text)


def changed_lines(before: str | None, after: str | None) -> list[str]:
    """Return the lines that differ, each with its sign, or why texts were not compared."""
    # Only on use: it takes a tenth of a second to load.
    from gateway.ui.texts import diff_lines

    compared_lines = list(diff_lines(before, after))
    differences = [pair for pair in compared_lines if pair[0] != " "]
    # Where texts differ and no line does, the only line says that they are too long.
    pairs = differences or (compared_lines if before != after else [])
    return [f"{sign} {printable(line)}".strip() for sign, line in pairs]


def short(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= WIDTH:
        return line
    return line[: WIDTH - 3] + "..."
