"""What the gateway says when it cannot answer, in the shape OpenAI's SDKs expect.

GatewayError
├── BadRequest 400 · Unauthenticated 401 · Forbidden 403 · NotFound 404 · UnknownModel 404 · MethodNotAllowed 405
├── RequestTimeout 408 · Conflict 409 · TooLarge 413 · UrlTooLong 414 · UnsupportedMedia 415
├── RateLimited 429 > BudgetSpent · HeadTooLarge 431
├── UpstreamUnreachable 502 · UpstreamAuthError 502 · StreamIncomplete 502
├── Unavailable 503
└── UpstreamTimeout 504
UpstreamRefused carries an upstream's own status and body, verbatim; UpstreamFailed the error it sent inside a stream.

How a message names a value that was given, and what may have been meant, is said here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import msgspec

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Headers = Sequence[tuple[bytes, bytes]]
SHOWN = 60  # characters of a value
LOOKED_AT = 4000  # characters of a value of which some are shown
KINDS = {
    dict: "an object",
    list: "a list",
    tuple: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
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


class GatewayError(Exception):
    """An answer that is an error: status, and `{"error": {message, type, param, code}}`."""

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.param = param
        self.headers = tuple(headers)

    def body(self) -> bytes:
        return error_body(self.message, self.type, self.code, self.param)

    def event(self) -> bytes:
        """The body as the last event of a stream: always an object with `error`, by which the SDKs know a failure."""
        return self.body()


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """An error object as JSON text; members without a value are null, never the word."""
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}
    )


class BadRequest(GatewayError):
    status, type = 400, "invalid_request_error"


class Unauthenticated(GatewayError):
    status, type, code = 401, "authentication_error", "invalid_api_key"


class Forbidden(GatewayError):
    status, type, code = 403, "permission_error", "forbidden"


class NotFound(GatewayError):
    status, type, code = 404, "invalid_request_error", "not_found"


class UnknownModel(GatewayError):
    status, type, code = 404, "invalid_request_error", "model_not_found"


class MethodNotAllowed(GatewayError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class RequestTimeout(GatewayError):
    status, type, code = 408, "timeout_error", "request_timeout"


class UrlTooLong(GatewayError):
    status, type, code = 414, "invalid_request_error", "url_too_long"


class HeadTooLarge(GatewayError):
    status, type, code = 431, "invalid_request_error", "headers_too_large"


class LeftEarly(GatewayError):
    """The client went away before it had sent its request: nobody is answered, the log alone is told."""

    status, type = 499, "invalid_request_error"


class Conflict(GatewayError):
    status, type, code = 409, "conflict_error", "conflict"


class TooLarge(GatewayError):
    status, type, code = 413, "invalid_request_error", "request_too_large"


class UnsupportedMedia(GatewayError):
    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class RateLimited(GatewayError):
    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class BudgetSpent(RateLimited):
    """Nothing is free again before the budget's next period: the code and type by which SDKs and apps tell it from a busy minute."""

    type, code = "insufficient_quota", "insufficient_quota"


class UpstreamUnreachable(GatewayError):
    status, type, code = 502, "upstream_error", "upstream_unreachable"


class UpstreamAuthError(GatewayError):
    status, type, code = 502, "upstream_auth_error", "upstream_auth_error"


class StreamIncomplete(GatewayError):
    status, type, code = 502, "upstream_error", "stream_incomplete"


class Unavailable(GatewayError):
    status, type, code = 503, "server_error", "unavailable"


class UpstreamTimeout(GatewayError):
    """code tells which timer: connect_timeout, first_token_timeout, stream_idle_timeout or total_timeout."""

    status, type, code = 504, "timeout_error", "total_timeout"


class UpstreamRefused(GatewayError):
    """The upstream's own refusal, passed on as it came: its status, its body, its headers.

    date: when it was sent, by the upstream's own clock. said: for the log, where the body is no longer its text."""

    def __init__(
        self, status: int, content: bytes, headers: Headers = (), date: bytes = b"", said: str = ""
    ) -> None:
        super().__init__(f"the upstream answered {status}", headers=headers)
        self.status = status
        self.content = content
        self.date, self.said = date, said

    def body(self) -> bytes:
        return self.content

    def event(self) -> bytes:
        try:
            if msgspec.json.decode(self.content)["error"]:
                return self.content
        except (ValueError, TypeError, LookupError, RecursionError):
            pass
        text = " ".join(self.content[:300].decode("utf-8", "replace").split())
        return error_body(
            f"The upstream answered {self.status}: {text or 'no text'}",
            "upstream_error",
            "upstream_error",
        )


class UpstreamFailed(GatewayError):
    """An error the upstream sent inside its stream, passed on as it came."""

    status = 502

    def __init__(self, error: object) -> None:
        super().__init__("the upstream reported an error in its stream")
        self.error = error

    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.error})


def kind_of(value: object) -> str:
    """What a value is, as JSON has it."""
    return KINDS.get(type(value), "a value")


def quoted(value: object) -> str:
    """A value as a message shows it: on one line and shortened; of a list or an object, that it is one."""
    if isinstance(value, str):
        text = shown_url(value[:LOOKED_AT])
        return repr(text) if len(value) <= SHOWN else f"{text[:SHOWN]!r}… ({len(value)} characters)"
    if isinstance(value, dict | list | tuple):
        return kind_of(value)
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)[:SHOWN]
    )


def shown_url(url: str) -> str:
    """An address without the user and password that may stand in it, and without its query, which may hold a key."""
    nameless = re.sub(r"(?:(?<=//)|\A(?=[^/@]*:))[^/]*@", "", url)
    return re.sub(r"(://[^?#]*)[?].*", r"\1?...", nameless, count=1, flags=re.DOTALL)


def instead(name: str, known: Iterable[str], listed: str = "") -> str:
    """What to give in place of a name that nobody knows: the nearest one, where one is near. listed: where all stand; else they are named."""
    names = sorted(known)
    if near := get_close_matches(name[:SHOWN].lower(), names, 1):
        return f", did you mean {near[0]}?{listed and f' {listed}'}"
    return f"; {listed or 'there are: ' + ', '.join(names)}"


class Filled(str):
    """A text whose `${...}` were filled in. raw: as it was written, which alone is ever shown."""

    __slots__ = ("raw",)
    raw: str


def told(
    error: ValidationError, model: type[BaseModel], listed: str = ""
) -> list[tuple[tuple[str, ...], str]]:
    """The path of each member that cannot be used; what is allowed there, and its value, unless that may be a key. listed: see `instead`."""
    return [
        (tuple(str(p)[:SHOWN] for p in x["loc"]), _wrong(x, model, listed))
        for x in error.errors(include_url=False)
    ]


def _wrong(error: Any, model: Any, listed: str) -> str:
    path, kind, value = error["loc"], error["type"], getattr(error["input"], "raw", error["input"])
    if kind == "extra_forbidden":  # whose value may be a key under a name that was mistyped
        return (
            f"there is no such setting{instead(str(path[-1]), _members(model, path[:-1]), listed)}"
        )
    text = SHAPES.get(kind) or error["msg"].removeprefix("Value error, ")
    if kind == "missing" or (
        isinstance(value, dict | list | tuple | bytes) and not kind.endswith("_type")
    ):
        return text  # which says all
    return f"{text}, not {kind_of(value) if kind in TABLE or not HIDDEN.isdisjoint(path[-2:]) else quoted(value)}"


def _members(kind: Any, path: Sequence[str | int]) -> list[str]:
    """What may stand at a path within a model."""
    for part in path:
        kind = (
            kind.model_fields[part].annotation
            if hasattr(kind, "model_fields")
            else get_args(kind)[isinstance(part, str)]
        )
        kind = get_args(kind)[0] if NoneType in get_args(kind) else kind
    return list(kind.model_fields)
