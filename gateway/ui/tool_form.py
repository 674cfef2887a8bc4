"""The form that runs a tool, made from the schema of its parameters. Pure.

Schemas come from servers of tools: what is not understood becomes a field for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.wire.chat import decode

# Tools with more take one JSON object.
MAX_ARGUMENT_FIELDS = 60
MAX_CHOICES = 200
# Of JSON in one field.
MAX_VALUE_CHARACTERS = 100_000
MAX_DESCRIPTION_CHARACTERS = 500
# Of the fields' names.
PREFIX = "argument:"
# The field for all arguments as JSON.
WHOLE = "arguments"
SIMPLE_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "choice"}
Schema = Mapping[str, Any]


class BadArgument(ValueError):
    """What stands in a field is no argument. name: of the argument, "" for all of them."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """A field for one argument. kind: text, integer, number, choice or json.

    choices: each with its JSON. default: what an empty field stands for, "" for nothing.
    """

    name: str
    kind: str
    description: str
    is_required: bool
    choices: Sequence[tuple[str, str]]
    default: str

    @property
    def field(self) -> str:
        """The name in the form."""
        return PREFIX + self.name


def list_fields(schema: Schema) -> list[ArgumentField]:
    """Return a field for each parameter; none where one JSON object is easier to write."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) > MAX_ARGUMENT_FIELDS:
        return []
    required = schema.get("required")
    if isinstance(required, list):
        required_names = required
    else:
        required_names = []
    return [
        _make_field(name, part if isinstance(part, dict) else {}, name in required_names)
        for name, part in properties.items()
    ]


def _make_field(name: str, schema: Schema, is_required: bool) -> ArgumentField:
    kind = _kind_of(schema)
    values = _values_of(schema)
    choices = [(_show(value), msgspec.json.encode(value).decode()) for value in values]
    description = str(schema.get("description") or "")[:MAX_DESCRIPTION_CHARACTERS]
    default = ""
    if "default" in schema:
        default = _show(schema["default"])
    if choices:
        kind = "choice"
    return ArgumentField(name, kind, description, is_required, choices, default)


def _kind_of(schema: Schema) -> str:
    declared_type = schema.get("type")
    if isinstance(declared_type, list):
        # Pydantic and zod write an optional string as ["string", "null"].
        real_types = [type_name for type_name in declared_type if type_name != "null"]
        declared_type = None
        if len(real_types) == 1:
            declared_type = real_types[0]
    if isinstance(declared_type, str):
        return SIMPLE_KINDS.get(declared_type, "json")
    return "json"


def _values_of(schema: Schema) -> list[Any]:
    """Return the values that a parameter may have; none if any."""
    enum_values = schema.get("enum")
    if isinstance(enum_values, list) and 0 < len(enum_values) <= MAX_CHOICES:
        return enum_values
    if _kind_of(schema) == "choice":
        return [True, False]
    return []


def _show(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def read_arguments(schema: Schema, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that a form gives. Raises BadArgument."""
    json_text = form.get(WHOLE, "").strip()
    if json_text:
        return _read_object(json_text)
    arguments = {}
    for field in list_fields(schema):
        text = form.get(field.field, "").replace("\r\n", "\n")
        # An empty text may be meant where there has to be one.
        if text or (field.is_required and field.kind == "text"):
            arguments[field.name] = _read_value(field, text)
    return arguments


def _read_object(text: str) -> dict[str, Any]:
    value = _decode("", text)
    if not isinstance(value, dict):
        raise BadArgument("", "The arguments must be a JSON object.")
    return value


def _read_value(field: ArgumentField, text: str) -> Any:
    if field.kind == "text":
        return text
    if field.kind in ("integer", "number"):
        return _read_number(field, text.strip())
    return _decode(field.name, text)


def _read_number(field: ArgumentField, text: str) -> Any:
    value = _decode(field.name, text)
    number_type = int if field.kind == "integer" else (int, float)
    if isinstance(value, bool) or not isinstance(value, number_type):
        kind = "a number"
        if field.kind == "integer":
            kind = "a whole number"
        raise BadArgument(field.name, f"{text[:40]!r} is not {kind}.")
    return value


def _decode(name: str, text: str) -> Any:
    if len(text) > MAX_VALUE_CHARACTERS:
        raise BadArgument(
            name, f"It has {len(text):,} characters; at most {MAX_VALUE_CHARACTERS:,} are read."
        )
    try:
        return decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as e:
        raise BadArgument(name, f"This is not JSON: {str(e)[:200]}.") from e


def show_schema(schema: Any) -> str:
    """Return a schema as people read it."""
    return json.dumps(schema, indent=2, ensure_ascii=False, default=str)
