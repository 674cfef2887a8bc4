"""Arguments of a call, made to fit the JSON Schema of its tool. Pure.

Models write `"3"` for 3 and a list as JSON text. What pydantic accepts in its lax mode is accepted
here as well, and numbers where text is due. Nothing is guessed: `"3.5"` is no integer, and 5 is no
list. Regular expressions of a schema (`pattern`) are left to the server that it describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

import msgspec
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gateway.wire.chat import decode

# Of a schema.
MAX_DEPTH = 16
# Of a value, in an error.
QUOTED_CHARACTERS = 80
# In an error.
LISTED_NAMES = 20
Schema = Mapping[str, Any]

# As pydantic names and reads them; built once.
SCALARS: dict[str, TypeAdapter[Any]] = {
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float),
    "boolean": TypeAdapter(bool),
    "string": TypeAdapter(str, config=ConfigDict(coerce_numbers_to_str=True)),
}
NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
# In a list of arguments.
SHORT_NOUNS = {"boolean": "boolean", "string": "text", "array": "list"}
PLURALS = {"integer": "integers", "number": "numbers", "boolean": "booleans", "object": "objects"}
EXACT: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class ArgumentMismatch(ValueError):
    """An argument that does not fit. The text names it, what it must be, and what it is."""


def coerce_arguments(schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the arguments as the schema has them, or the text of an error.

    The text has no `Error: ` in front and no full stop: `days must be an integer, got "soon"`.
    Defaults of the schema are filled in. An argument that the schema does not name is an error,
    unless it says `additionalProperties`. Dates and times stay ISO text.
    """
    properties = _properties_of(schema)
    if not schema.get("additionalProperties"):
        for name in arguments:
            if name not in properties:
                return f"there is no argument {quote(name)}. {list_arguments(properties)}"
    try:
        values = _coerce_members(schema, arguments, "", 0)
    except ArgumentMismatch as e:
        return str(e)
    for name in _required_of(schema):
        if name not in values:
            return f"{name} is missing. {list_arguments(properties)}"
    return values


def list_arguments(properties: Schema) -> str:
    """Return words that name the arguments of a tool, with their types."""
    if not properties:
        return "This tool takes no arguments"
    names = list(properties)
    descriptions = [f"{name} ({_short_noun(properties[name])})" for name in names[:LISTED_NAMES]]
    if len(names) > LISTED_NAMES:
        descriptions.append(f"and {len(names) - LISTED_NAMES} more")
    return f"The arguments are: {', '.join(descriptions)}"


def quote(value: Any) -> str:
    """Return a value as short JSON text."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = str(type(value).__name__)
    if len(text) <= QUOTED_CHARACTERS:
        return text
    return text[: QUOTED_CHARACTERS - 3] + "..."


def _coerce(schema: Any, value: Any, path: str, depth: int) -> Any:
    """Return the value as the schema has it. Raises ArgumentMismatch."""
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return value
    if "const" in schema:
        return _choose((schema["const"],), schema, value, path)
    if isinstance(schema.get("enum"), list):
        return _choose(schema["enum"], schema, value, path)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return _coerce_to_first(branches, value, path, depth)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        branches = [{**schema, "type": kind} for kind in kinds]
        return _coerce_to_first(branches, value, path, depth)
    result = _coerce_kind(schema, kinds, value, path, depth)
    _check_bounds(schema, result, path)
    return result


def _coerce_kind(schema: Schema, kind: Any, value: Any, path: str, depth: int) -> Any:
    if kind == "array":
        return _coerce_list(schema, value, path, depth)
    if kind == "object":
        if isinstance(value, Mapping):
            members = value
        else:
            members = _from_text(value, dict)
        if members is None:
            raise _mismatch(schema, value, path)
        return _coerce_members(schema, members, path, depth)
    if kind == "null":
        if value is not None:
            raise _mismatch(schema, value, path)
        return None
    if isinstance(kind, str) and kind in SCALARS:
        return _coerce_scalar(schema, value, path)
    return value


def _coerce_scalar(schema: Schema, value: Any, path: str) -> Any:
    kind = schema["type"]
    read_moment = None
    if kind == "string":
        read_moment = MOMENTS.get(str(schema.get("format")))
    try:
        if read_moment is not None:
            return read_moment(value)
        scalar = SCALARS[kind].validate_python(value)
        # JSON has neither NaN nor infinity. A whole number stays as it was written.
        if kind == "number" and not math.isfinite(scalar):
            raise ValueError(value)
        if kind == "number" and type(value) is int:
            return value
    except (ValidationError, ValueError, OverflowError):
        raise _mismatch(schema, value, path) from None
    else:
        return scalar


def _read_date(value: Any) -> str:
    """Return ISO text of a day. Raises ValueError."""
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        raise ValueError("no date")
    if len(value) == 10:
        return date.fromisoformat(value).isoformat()
    moment = datetime.fromisoformat(value)
    if moment.time() != time():
        raise ValueError("a time of day")
    return moment.date().isoformat()


def _read_moment(value: Any) -> str:
    """Return the text, if it is a date and time in ISO form. Raises ValueError."""
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        raise ValueError("no time")
    datetime.fromisoformat(value)
    return value


MOMENTS: dict[str, Callable[[Any], str]] = {"date": _read_date, "date-time": _read_moment}


def _coerce_list(schema: Schema, value: Any, path: str, depth: int) -> list[Any]:
    if isinstance(value, list):
        items = value
    else:
        items = _from_text(value, list)
    if items is None:
        raise _mismatch(schema, value, path)
    item_schema = schema.get("items")
    return [_coerce(item_schema, item, f"{path}[{at}]", depth + 1) for at, item in enumerate(items)]


def _from_text(value: Any, kind: type) -> Any:
    """Return a list or an object that is written as JSON text, or None."""
    if not isinstance(value, str):
        return None
    try:
        json_value = decode(value.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    if isinstance(json_value, kind):
        return json_value
    return None


def _coerce_members(
    schema: Schema, members: Mapping[str, Any], path: str, depth: int
) -> dict[str, Any]:
    properties = _properties_of(schema)
    extra = schema.get("additionalProperties")
    values: dict[str, Any] = {}
    for name, value in members.items():
        member_path = f"{path}.{name}" if path else str(name)
        member = properties.get(name)
        if member is None:
            if extra is False and path:
                raise ArgumentMismatch(f"{path} has no member {quote(name)}")
            values[name] = _coerce(extra, value, member_path, depth + 1)
        elif not _stands_for_default(schema, name, value):
            values[name] = _coerce(member, value, member_path, depth + 1)
    for name, member in properties.items():
        if name not in values and isinstance(member, Mapping) and "default" in member:
            values[name] = member["default"]
    if path:
        for name in _required_of(schema):
            if name not in values:
                raise ArgumentMismatch(f"{path}.{name} is missing")
    return values


def _properties_of(schema: Schema) -> Schema:
    """Return the members that a schema describes; none where it is no schema of an object."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        return properties
    return {}


def _required_of(schema: Schema) -> list[str]:
    required = schema.get("required")
    names = required if isinstance(required, (list, tuple)) else ()
    return [name for name in names if isinstance(name, str)]


def _stands_for_default(schema: Schema, name: str, value: Any) -> bool:
    """Tell whether a null means that the argument was left out."""
    if value is not None:
        return False
    member = schema["properties"][name]
    if not isinstance(member, Mapping) or _allows_null(member):
        return False
    return "default" in member or name not in _required_of(schema)


def _allows_null(schema: Schema, depth: int = 0) -> bool:
    if "const" in schema:
        return schema["const"] is None
    if isinstance(schema.get("enum"), list):
        return None in schema["enum"]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return depth > MAX_DEPTH or any(
            _allows_null(branch, depth + 1) for branch in branches if isinstance(branch, Mapping)
        )
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return "null" in kinds
    return kinds in ("null", None)


def _coerce_to_first(branches: list[Any], value: Any, path: str, depth: int) -> Any:
    """Return the value as the first branch has it that it is already, else that it can be."""
    exact_branches = [branch for branch in branches if _is_already(branch, value)]
    for branch in [
        *exact_branches,
        *(branch for branch in branches if branch not in exact_branches),
    ]:
        try:
            return _coerce(branch, value, path, depth + 1)
        except ArgumentMismatch:
            continue
    raise _mismatch({"anyOf": branches}, value, path)


def _is_already(schema: Any, value: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if isinstance(schema.get("enum"), list):
        return any(_is_same(choice, value) for choice in schema["enum"])
    kind = schema.get("type")
    if isinstance(value, bool):
        return kind == "boolean"
    # A whole number is an integer before it is a number, whatever the order of the branches.
    exact_types = (
        (float,) if kind == "number" else EXACT.get(kind, ()) if isinstance(kind, str) else ()
    )
    return isinstance(value, exact_types)


def _choose(choices: Iterable[Any], schema: Schema, value: Any, path: str) -> Any:
    """Return the choice that the value is, or that it is the text of."""
    options = list(choices)
    for choice in options:
        if _is_same(choice, value):
            return choice
    for choice in options:
        if isinstance(choice, str) != isinstance(value, str) and _text_of(choice) == _text_of(
            value
        ):
            return choice
    raise _mismatch(schema, value, path)


def _is_same(choice: Any, value: Any) -> bool:
    return isinstance(choice, bool) == isinstance(value, bool) and bool(choice == value)


def _text_of(value: Any) -> str | None:
    """Return how a scalar is written as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, (int, float)):
        return str(value)
    return None


def _check_bounds(schema: Schema, value: Any, path: str) -> None:
    """Refuse a number, text or list outside the schema's bounds. Raises ArgumentMismatch."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    for name, (say, is_outside) in BOUNDS.items():
        limit = schema.get(name)
        if not isinstance(limit, (int, float)) or isinstance(limit, bool):
            continue
        amount = value
        if name.endswith(("Length", "Items")):
            if not isinstance(value, str if name.endswith("Length") else list):
                continue
            amount = len(value)
        elif not is_number:
            continue
        if is_outside(amount, limit):
            raise ArgumentMismatch(f"{path} must {say} {limit:g}, got {quote(value)}")


Outside = Callable[[float, float], bool]
BOUNDS: dict[str, tuple[str, Outside]] = {
    "minimum": ("be at least", lambda value, bound: value < bound),
    "maximum": ("be at most", lambda value, bound: value > bound),
    "exclusiveMinimum": ("be more than", lambda value, bound: value <= bound),
    "exclusiveMaximum": ("be less than", lambda value, bound: value >= bound),
    "minLength": ("have a length of at least", lambda value, bound: value < bound),
    "maxLength": ("have a length of at most", lambda value, bound: value > bound),
    "minItems": ("have a length of at least", lambda value, bound: value < bound),
    "maxItems": ("have a length of at most", lambda value, bound: value > bound),
}


def _mismatch(schema: Schema, value: Any, path: str) -> ArgumentMismatch:
    return ArgumentMismatch(f"{path or 'the value'} must be {_noun(schema)}, got {quote(value)}")


def _noun(schema: Any, depth: int = 0) -> str:
    """Return what a value must be, as a person says it."""
    if not isinstance(schema, Mapping) or depth > 4:
        return "a value"
    if "const" in schema:
        return quote(schema["const"])
    if isinstance(schema.get("enum"), list):
        choices = [quote(choice) for choice in schema["enum"][:LISTED_NAMES]]
        return "one of " + ", ".join(choices) if len(choices) > 1 else "".join(choices)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return " or ".join(_noun(branch, depth + 1) for branch in branches)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(NOUNS.get(str(name), "a value") for name in kind)
    if kind == "string" and schema.get("format") == "date":
        return "a date such as 2026-11-26"
    if kind == "string" and schema.get("format") == "date-time":
        return "a date and time such as 2026-11-26T10:30:00Z"
    if kind == "array":
        items = schema.get("items")
        item_kind = items.get("type") if isinstance(items, Mapping) else None
        plural = PLURALS.get(item_kind) if isinstance(item_kind, str) else None
        return f"a list of {plural}" if plural else "a list"
    if isinstance(kind, str):
        return NOUNS.get(kind, "a value")
    return "a value"


def _short_noun(schema: Any) -> str:
    """Return a type in one or two words."""
    noun = _noun(schema)
    kind = None
    if isinstance(schema, Mapping):
        kind = schema.get("type")
    if isinstance(kind, str) and noun == NOUNS.get(kind) and kind in SHORT_NOUNS:
        return SHORT_NOUNS[kind]
    return noun.removeprefix("a ").removeprefix("an ")
