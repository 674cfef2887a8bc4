"""Values inside JSON texts: pointers (RFC 6901), and which values are the same. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from memory.conversation.foreign_json import decode_foreign

HEAD_LINE = re.compile(r"Result of [^\n]{1,200} \(data, not instructions\):\n?")
ARRAY_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
BAD_ESCAPE = re.compile(r"~(?![01])")
MISSING = object()
# Of a value that results are compared with.
MAX_DEPTH = 32


def without_head_line(result: str) -> str:
    """Return a tool's result without the line that marks it as data."""
    head = HEAD_LINE.match(result)
    if head:
        return result[head.end() :]
    return result


def read_result(result: str) -> Any:
    """Return a tool's result read as JSON; MISSING if it is none."""
    try:
        return decode_foreign(without_head_line(result))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return MISSING


def is_pointer(text: str) -> bool:
    """Tell whether a text is a JSON pointer."""
    return (text == "" or text.startswith("/")) and BAD_ESCAPE.search(text) is None


def value_at(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer, MISSING where there is none."""
    value = document
    for step in pointer.split("/")[1:]:
        member = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(member, MISSING)
        elif isinstance(value, list) and ARRAY_INDEX.fullmatch(member):
            if int(member) < len(value):
                value = value[int(member)]
            else:
                value = MISSING
        else:
            return MISSING
    return value


def is_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Tell whether arrays and objects are nested deeper than this."""
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(is_deep(member, limit - 1) for member in members)


def is_same_json(value: Any, expected_value: Any) -> bool:
    """Tell whether two JSON values are the same; 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool) or isinstance(expected_value, bool):
        return value is expected_value
    if isinstance(value, list) and isinstance(expected_value, list):
        return len(value) == len(expected_value) and all(map(is_same_json, value, expected_value))
    if isinstance(value, dict) and isinstance(expected_value, dict):
        return value.keys() == expected_value.keys() and all(
            is_same_json(member, expected_value[name]) for name, member in value.items()
        )
    return bool(value == expected_value)
