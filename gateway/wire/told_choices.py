"""The choices of a chunk as servers that send something else mean them. Pure."""

from __future__ import annotations

from typing import Any

from gateway.wire.merge import CALLS
from gateway.wire.streamed_calls import read_index

Json = dict[str, Any]
# The one call that a message could make before `tool_calls`
LEGACY_CALL = "function_call"


def told_choices(choices: Any) -> Any:
    """Return choices without what tells nothing, whatever its type, and with numbers as indexes.

    Some servers send `null`, an empty text or an empty object in place of a list or an object, an
    index as a text, and a call without the list around it. What tells something in a wrong place
    stays as it is.
    """
    if not isinstance(choices, list):
        return choices or []
    return [_told_choice(c) if isinstance(c, dict) else c for c in choices if c or c == {}]


def told_calls(delta: Json) -> list[Any]:
    """Return the calls that a delta or a message tells, the one of the older form included."""
    calls = delta.get(CALLS)
    if isinstance(calls, dict) and calls:
        return [calls]
    if isinstance(calls, list) and calls:
        return calls
    legacy_call = delta.get(LEGACY_CALL)
    if isinstance(legacy_call, dict) and legacy_call:
        return [as_call(legacy_call)]
    return []


def tells_legacy_call(body: Json) -> bool:
    """Tell whether a delta of a chunk holds a call of the older form."""
    return any((choice.get("delta") or {}).get(LEGACY_CALL) for choice in body["choices"])


def as_call(legacy_call: Json) -> Json:
    """Return a call of the older form, of which a message has one, as one of `tool_calls`."""
    return {"index": 0, "type": "function", "function": legacy_call}


def _told_choice(choice: Json) -> Json:
    delta = choice.get("delta") or {}
    if isinstance(delta, dict):
        delta = {k: v for k, v in delta.items() if v or k not in ("role", CALLS)}
        calls = delta.get(CALLS)
        if isinstance(calls, dict):
            delta[CALLS] = [calls]
        elif isinstance(calls, list):
            delta[CALLS] = [c for c in calls if c]
    index = choice.get("index")
    number = read_index(index)
    return {**choice, "index": number if number is not None else index or 0, "delta": delta}
