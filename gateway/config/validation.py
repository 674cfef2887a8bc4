"""Say what is wrong with a value of the configuration or of a body: its path, its value, what is
allowed.
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
    "tuple_type": 'this is a list, such as ["a", "b"]',
    "missing": "this is needed",
    "string_type": "this is a string",
    **dict.fromkeys(TABLE, "this is a table, in JSON an object"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "this is a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "this is a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "this is true or false"),
}


HIDDEN = frozenset(
    {"api_key", "key", "key_hash", "keys"}
)  # members that hold keys, or would where one was put in the wrong place


class InterpolatedText(str):
    """A text whose `${...}` were filled in. raw: as it was written, which alone is ever shown."""

    __slots__ = ("raw",)
    raw: str


def describe_validation_errors(
    error: ValidationError, model: type[BaseModel], listed: str = ""
) -> list[tuple[tuple[str, ...], str]]:
    """Return the path of each member that cannot be used; what is allowed there, and its value,
    unless that may be a key. listed: see `instead`.
    """
    return [
        (tuple(str(p)[:MAX_SHOWN_CHARACTERS] for p in x["loc"]), _describe_error(x, model, listed))
        for x in error.errors(include_url=False)
    ]


def _describe_error(error: Any, model: Any, listed: str) -> str:
    path, kind, value = error["loc"], error["type"], getattr(error["input"], "raw", error["input"])
    if kind == "extra_forbidden":  # whose value may be a key under a name that was mistyped
        return (
            "there is no such "
            f"setting{did_you_mean(str(path[-1]), _members_at(model, path[:-1]), listed)}"
        )
    text = SHAPES.get(kind) or error["msg"].removeprefix("Value error, ")
    if kind == "missing" or (
        isinstance(value, dict | list | tuple | bytes) and not kind.endswith("_type")
    ):
        return text  # which says all
    hidden = kind in TABLE or not HIDDEN.isdisjoint(path[-2:])
    return f"{text}, not {kind_of(value) if hidden else quote_value(value)}"


def _members_at(kind: Any, path: Sequence[str | int]) -> list[str]:
    """Return what may stand at a path within a model."""
    for part in path:
        kind = (
            kind.model_fields[part].annotation
            if hasattr(kind, "model_fields")
            else get_args(kind)[isinstance(part, str)]
        )
        kind = get_args(kind)[0] if NoneType in get_args(kind) else kind
    return list(kind.model_fields)
