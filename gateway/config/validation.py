"""Describe validation errors of the configuration and of request bodies.

A message names the path, what is allowed there, and the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
from gateway.errors import MAX_SHOWN_CHARACTERS, did_you_mean, kind_of, quote_value

TABLE = ("model_type", "dict_type")
SHAPES = {
    "tuple_type": 'this must be a list, such as ["a", "b"]',
    "missing": "this is required",
    "string_type": "this must be a string",
    **dict.fromkeys(TABLE, "this must be a table (in JSON, an object)"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "this must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "this must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "this must be true or false"),
}
# Members that hold keys, or would where one was put in the wrong place.
HIDDEN = frozenset(
    {"api_key", "key", "key_hash", "keys", "secret", "headers", "env", "secrets", "command"}
)


class InterpolatedText(str):
    """A string whose `${...}` were substituted.

    raw: as it was written; only this is ever shown.
    """

    __slots__ = ("raw",)
    raw: str


def describe_validation_errors(
    error: ValidationError, model: type[BaseModel], valid_names: str = "", limit: int | None = None
) -> list[tuple[tuple[str, ...], str]]:
    """Return the path and a description of each validation error.

    The value is left out if it may be a key. valid_names: see `did_you_mean`. limit: of errors that
    are described, None for all.
    """
    return [
        (
            tuple(str(p)[:MAX_SHOWN_CHARACTERS] for p in x["loc"]),
            _describe_error(x, model, valid_names),
        )
        for x in error.errors(include_url=False)[:limit]
    ]


def _describe_error(error: Any, model: Any, valid_names: str) -> str:
    path = error["loc"]
    kind = error["type"]
    value = getattr(error["input"], "raw", error["input"])
    # The value may be a key under a misspelt name.
    if kind == "extra_forbidden":
        return (
            "there is no such "
            f"setting{did_you_mean(str(path[-1]), _members_at(model, path[:-1]), valid_names)}"
        )
    text = SHAPES.get(kind) or error["msg"].removeprefix("Value error, ")
    if kind == "missing" or (
        isinstance(value, dict | list | tuple | bytes) and not kind.endswith("_type")
    ):
        return text
    hidden = kind in TABLE or not HIDDEN.isdisjoint(path[-2:])
    return f"{text}, not {kind_of(value) if hidden else quote_value(value)}"


def _members_at(kind: Any, path: Sequence[str | int]) -> list[str]:
    """Return the names of the members allowed at a path within a model."""
    for part in path:
        if hasattr(kind, "model_fields"):
            kind = kind.model_fields[part].annotation
        else:
            kind = get_args(kind)[isinstance(part, str)]
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
        if hasattr(kind, "__metadata__"):
            kind = getattr(kind, "__origin__", kind)
    return list(kind.model_fields)
