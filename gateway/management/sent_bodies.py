"""Bodies that are sent to the management API, read as what a route takes.

What a body says and a route does not know is refused by its place, and not ignored in silence.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.openapi.spec import Operation

from gateway.errors import MAX_SHOWN_CHARACTERS, BadRequest, did_you_mean, quote_value
from gateway.http.json_thread import run_by_weight
from gateway.http.request_body import read_body
from gateway.wire.chat_request import parse
from memory.export_format import VALUES, has_many_values

S = TypeVar("S", bound=msgspec.Struct)
MIB = 1 << 20
READING = ("GET", "HEAD", "OPTIONS")
# Msgspec's error messages.
FAULT = re.compile(
    r"(?:Object contains unknown field `(.*)`|Object missing required field "
    r"`(.*)`|(.*?))(?: "
    r"- at "
    r"`\$\.?(.*)`)?",
    re.DOTALL,
)
# A member's name within a fault.
NESTED = re.compile(r"(.*)` - at `\$\.?(.*)", re.DOTALL)
PATH_STEP = re.compile(r"(\w+)|\[(\d+)\]")


async def parse_by_weight(body: bytes, model: type[S]) -> S:
    """Do what `parse_body` does, in a thread if that takes long."""
    return await run_by_weight(body, parse_body, body, model)


def parse_body(body: bytes, model: type[S]) -> S:
    """Parse the body as this model. Raises BadRequest naming the member and its value."""
    if has_many_values(body):
        raise BadRequest(f"The body has over {VALUES} values: split it.", code="too_many_values")
    value = parse(body)
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as e:
        fault = FAULT.fullmatch(str(e))
        assert fault is not None  # noqa: S101 - every message has this form
        name, missing_member, text, path = fault.groups()
        if name is not None:
            # A name is whatever the client wrote, also one that looks like a place.
            is_nested = name not in value
            name = (_place_of(name) if is_nested else name)[:MAX_SHOWN_CHARACTERS]
            hint = ""
            if not is_nested:
                hint = did_you_mean(name, model.__struct_encode_fields__)
            raise BadRequest(f"`{name}` is not a member of this body{hint}", param=name) from e
        if missing_member is not None:
            missing_member = _place_of(missing_member)
            raise BadRequest(f"`{missing_member}` is missing.", param=missing_member) from e
        raise BadRequest(
            f"`{path}` is {quote_value(_at(value, path))}: {text[:1].lower()}{text[1:]}.",
            param=path,
        ) from e


def _place_of(name: str) -> str:
    """Return where a member stands whose name a fault tells with its place, if it is nested."""
    match = NESTED.fullmatch(name)
    if match:
        return f"{match[2]}.{match[1]}"
    return name


def _at(value: Any, path: str) -> Any:
    """Return the value at a path such as `tags[1]`."""
    for name, index in PATH_STEP.findall(path):
        if name:
            value = value[name]
        else:
            value = value[int(index)]
    return value


async def read_limited(request: Request[Any, Any, Any], mib: float) -> bytes:
    """Return a request's body of so many MiB. Raises TooLarge, UnsupportedMedia, BadRequest."""
    return await read_body(request.receive, dict(request.scope["headers"]), int(mib * MIB))


def takes_body(request: Request[Any, Any, Any]) -> bool:
    """Tell whether a route describes a body that it takes, or only reads."""
    return request.method in READING or request.route_handler.operation_class is not Operation


async def check_empty(body: bytes) -> None:
    """Raise BadRequest for a body of a route that takes none, unless it says nothing."""
    if not body.strip():
        return
    for name in await run_by_weight(body, parse, body):
        name = name[:MAX_SHOWN_CHARACTERS]
        raise BadRequest(f"`{name}` is not known here: this request takes no body.", param=name)
