"""The choices of a chunk as servers that send something else mean them. Pure."""

from __future__ import annotations

from typing import Any

from gateway.wire.merge import CALLS
from gateway.wire.streamed_calls import read_index

Json = dict[str, Any]


def told_choices(choices: Any) -> Any:
    """Return choices without what tells nothing, whatever its type, and with numbers as indexes.

    Some servers send `null`, an empty text or an empty object in place of a list or an object, and
    an index as a text. What tells something in a wrong place stays as it is.
    """
    if not isinstance(choices, list):
        return choices or []
    return [_told_choice(c) if isinstance(c, dict) else c for c in choices if c or c == {}]


def _told_choice(choice: Json) -> Json:
    delta = choice.get("delta") or {}
    if isinstance(delta, dict):
        delta = {k: v for k, v in delta.items() if v or k not in ("role", CALLS)}
        if isinstance(calls := delta.get(CALLS), list):
            delta[CALLS] = [c for c in calls if c]
    index = choice.get("index")
    number = read_index(index)
    return {**choice, "index": number if number is not None else index or 0, "delta": delta}
