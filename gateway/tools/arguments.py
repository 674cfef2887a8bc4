"""Checks a call's arguments by a JSON Schema, and makes of them what the schema wants. Pure.

Models write `"3"` where a number is wanted, and a list as JSON text: both are taken. What would
have to be guessed is refused, with the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from memory import decode_foreign

Json = dict[str, Any]
MAX_DEPTH = 16
QUOTED_CHARACTERS = 60  # of a value in an error
NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
WORDS = {"true": True, "false": False}


class UnfitArgument(Exception):
    """A value that does not fit its schema; the message is for the model."""


def coerce_arguments(parameters: Mapping[str, Any], arguments: Json) -> Json | str:
    """Return the arguments as the schema wants them, or what is wrong with them."""
    properties = parameters.get("properties") or {}
    listed = ", ".join(properties) or "none"
    unknown = next((name for name in arguments if name not in properties), None)
    if unknown is not None and parameters.get("additionalProperties") is not True:
        return f"there is no argument {quote(unknown)}; there are: {listed}"
    coerced: Json = {}
    for name, value in arguments.items():
        schema = properties.get(name) or {}
        if value is None and "default" in schema:
            value = schema["default"]
        try:
            coerced[name] = coerce(name, schema, value)
        except UnfitArgument as e:
            return str(e)
    for name, schema in properties.items():
        if name not in coerced and isinstance(schema, dict) and "default" in schema:
            coerced[name] = schema["default"]
    missing = next((name for name in parameters.get("required") or () if name not in coerced), None)
    if missing is not None:
        return f"the argument {quote(missing)} is missing; there are: {listed}"
    return coerced


def coerce(name: str, schema: Mapping[str, Any], value: Any, depth: int = 0) -> Any:
    """Return a value as a schema wants it. Raises UnfitArgument."""
    kinds = _kinds_of(schema)
    if depth > MAX_DEPTH or not kinds:
        return value
    for kind in kinds:
        found, fitting = READERS[kind](value)
        if found:
            _check_choice(name, schema, fitting)
            return _coerce_within(name, schema, fitting, depth)
    wanted = " or ".join(NOUNS[kind] for kind in kinds)
    raise UnfitArgument(f"{name} must be {wanted}, got {quote(value)}")


def quote(value: Any) -> str:
    """Return a value as JSON, not too long."""
    try:
        text = msgspec.json.encode(value).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}..."


def _kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema allows, none where it says nothing that is known here."""
    told = schema.get("type")
    kinds = told if isinstance(told, list) else [told]
    if not all(isinstance(kind, str) and kind in READERS for kind in kinds):
        return []
    return kinds


def _check_choice(name: str, schema: Mapping[str, Any], value: Any) -> None:
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        listed = ", ".join(quote(choice) for choice in choices[:20])
        raise UnfitArgument(f"{name} must be one of {listed}, got {quote(value)}")
    for member, is_wrong, words in (
        ("minimum", lambda bound: value < bound, "at least"),
        ("maximum", lambda bound: value > bound, "at most"),
    ):
        bound = schema.get(member)
        if isinstance(value, int | float) and isinstance(bound, int | float) and is_wrong(bound):
            raise UnfitArgument(f"{name} must be {words} {bound}, got {quote(value)}")


def _coerce_within(name: str, schema: Mapping[str, Any], value: Any, depth: int) -> Any:
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return [coerce(f"{name}[{i}]", items, v, depth + 1) for i, v in enumerate(value)]
    if isinstance(value, dict) and isinstance(members := schema.get("properties"), dict):
        missing = next((m for m in schema.get("required") or () if m not in value), None)
        if missing is not None:
            raise UnfitArgument(f"{name}.{missing} is missing")
        return {
            k: coerce(f"{name}.{k}", members[k], v, depth + 1)
            if isinstance(members.get(k), dict)
            else v
            for k, v in value.items()
        }
    return value


Reading = tuple[bool, Any]
UNFIT: Reading = (False, None)


def _integer(value: Any) -> Reading:
    if isinstance(value, bool):
        return UNFIT
    if isinstance(value, int):
        return True, value
    if isinstance(value, float):
        return (True, int(value)) if value.is_integer() else UNFIT
    if isinstance(value, str) and len(value) <= 32:
        text = value.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        return (True, int(text)) if digits.isascii() and digits.isdigit() else UNFIT
    return UNFIT


def _number(value: Any) -> Reading:
    if isinstance(value, bool):
        return UNFIT
    if isinstance(value, int | float):
        return True, value
    if isinstance(value, str) and len(value) <= 64:
        try:
            number = float(value)
        except ValueError:
            return UNFIT
        if not math.isfinite(number):
            return UNFIT
        whole, as_integer = _integer(value)
        return True, as_integer if whole else number
    return UNFIT


def _boolean(value: Any) -> Reading:
    if isinstance(value, bool):
        return True, value
    if isinstance(value, str) and value.strip().lower() in WORDS:
        return True, WORDS[value.strip().lower()]
    if value in (0, 1) and isinstance(value, int):
        return True, bool(value)
    return UNFIT


def _string(value: Any) -> Reading:
    if isinstance(value, str):
        return True, value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True, msgspec.json.encode(value).decode()
    return UNFIT


def _parser_of(kind: type) -> Callable[[Any], Reading]:
    """Return what takes a value of this type, or JSON text of one."""

    def read(value: Any) -> Reading:
        if isinstance(value, kind):
            return True, value
        if not isinstance(value, str):
            return UNFIT
        try:
            found = decode_foreign(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return UNFIT
        return (True, found) if isinstance(found, kind) else UNFIT

    return read


def _null(value: Any) -> Reading:
    return value is None, None


READERS: dict[str, Callable[[Any], Reading]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _parser_of(list),
    "object": _parser_of(dict),
    "string": _string,
}
