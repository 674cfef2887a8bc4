"""Makes a value for a JSON schema from a text: forced tool arguments, a JSON answer. Pure."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
_EMPTY: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "null": None}
DEPTH = 8


def example_value(schema: Any, text: str, depth: int = 0) -> Any:
    """Return a value of this schema's type.

    Strings are `text`, required members exist, and below 8 levels everything is empty.
    """
    if not isinstance(schema, dict):
        schema = {}
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list) and kind:
        kind = kind[0]
    if kind == "object":
        return _members(schema, text, depth)
    if kind == "string":
        return text
    return _EMPTY.get(str(kind))


def _members(schema: Json, text: str, depth: int) -> Json:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth >= DEPTH:
        return {}
    required = schema.get("required")
    if isinstance(required, list):
        names = required
    else:
        names = list(properties)
    return {str(name): example_value(properties.get(str(name)), text, depth + 1) for name in names}
