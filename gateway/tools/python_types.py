"""Annotations of a tool's parameters, as JSON Schema and as what its values become. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 4
# Names of `sandbox_runtime`.
DATE = "_mnemogate_date"
DATETIME = "_mnemogate_datetime"
SCALARS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "NoneType": {"type": "null"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
}
ALLOWED = (
    "str, int, float, bool, None, list[T], dict[str, T], Literal[...], T | U, Optional[T], date "
    "or datetime"
)


class UnknownAnnotation(ValueError):
    """An annotation that is none of those that are read. The text says what was found."""


@dataclass(frozen=True, slots=True)
class ParameterType:
    """A type. schema: as JSON Schema. convert: code that makes a value of JSON one of this type."""

    schema: dict[str, Any]
    convert: Callable[[str], str] | None = None


def read_annotation(node: ast.expr, depth: int = 1) -> ParameterType:
    """Return the type that an annotation names. Raises UnknownAnnotation."""
    if depth > MAX_DEPTH:
        raise UnknownAnnotation(f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(node, ast.Constant):
        return _read_constant(node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _join([read_annotation(part, depth) for part in _alternatives(node)])
    if isinstance(node, ast.Subscript):
        return _read_generic(node, depth)
    name = _name_of(node)
    if name not in SCALARS:
        raise UnknownAnnotation(f"is {ast.unparse(node)[:60]!r}, use {ALLOWED}")
    makers = {"date": DATE, "datetime": DATETIME}
    maker = makers.get(name)
    if maker is None:
        return ParameterType(dict(SCALARS[name]))
    return ParameterType(dict(SCALARS[name]), lambda code: f"{maker}.fromisoformat({code})")


def _read_constant(node: ast.Constant, depth: int) -> ParameterType:
    if node.value is None:
        return ParameterType(dict(SCALARS["None"]))
    if isinstance(node.value, str):
        try:
            annotation = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UnknownAnnotation(f"is {node.value[:60]!r}, use {ALLOWED}") from None
        # A text in a text is none.
        return read_annotation(annotation, depth + 1)
    raise UnknownAnnotation(f"is {str(node.value)[:60]}, use {ALLOWED}")


def _read_generic(node: ast.Subscript, depth: int) -> ParameterType:
    name = _name_of(node.value)
    argument = node.slice
    if name in ("list", "List"):
        return _list_of(read_annotation(argument, depth + 1))
    if name in ("dict", "Dict"):
        parts = argument.elts if isinstance(argument, ast.Tuple) else []
        if len(parts) != 2 or _name_of(parts[0]) != "str":
            raise UnknownAnnotation("is a dict, whose keys are text: use dict[str, T]")
        return _dict_of(read_annotation(parts[1], depth + 1))
    if name == "Optional":
        return _join([read_annotation(argument, depth), ParameterType(dict(SCALARS["None"]))])
    if name == "Union":
        parts = argument.elts if isinstance(argument, ast.Tuple) else [argument]
        return _join([read_annotation(part, depth) for part in parts])
    if name == "Literal":
        return _read_literal(argument)
    raise UnknownAnnotation(f"is {ast.unparse(node)[:60]!r}, use {ALLOWED}")


def _list_of(item: ParameterType) -> ParameterType:
    schema = {"type": "array", "items": item.schema}
    convert = item.convert
    if convert is None:
        return ParameterType(schema)
    return ParameterType(schema, lambda code: f"[{convert('_item')} for _item in {code}]")


def _dict_of(value: ParameterType) -> ParameterType:
    schema = {"type": "object", "additionalProperties": value.schema}
    convert = value.convert
    if convert is None:
        return ParameterType(schema)
    return ParameterType(
        schema, lambda code: f"{{_key: {convert('_item')} for _key, _item in {code}.items()}}"
    )


def _read_literal(node: ast.expr) -> ParameterType:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    values: list[Any] = []
    for part in parts:
        try:
            value = ast.literal_eval(part)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            value = ...
        if not (value is None or isinstance(value, (str, int, bool))):
            raise UnknownAnnotation("is a Literal, whose values are text, whole numbers or None")
        values.append(value)
    return ParameterType({"enum": values})


def _join(parts: list[ParameterType]) -> ParameterType:
    """Return a type that is one of several."""
    branches: list[dict[str, Any]] = []
    for part in parts:
        branches += part.schema.get("anyOf", [part.schema])
    unique_branches = [branch for at, branch in enumerate(branches) if branch not in branches[:at]]
    schema = unique_branches[0] if len(unique_branches) == 1 else {"anyOf": unique_branches}
    converters = [(part.schema, part.convert) for part in parts if part.convert is not None]
    if not converters or SCALARS["str"] in unique_branches:
        # Text that may be anything stays text.
        return ParameterType(schema)

    def convert(code: str) -> str:
        result = code
        for branch, make in reversed(converters):
            kinds = {"array": "list", "object": "dict"}
            kind = kinds.get(str(branch.get("type")), "str")
            result = f"({make(code)} if isinstance({code}, {kind}) else {result})"
        return result

    return ParameterType(schema, convert)


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """Return what stands between the bars of `A | B | C`."""
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""
