"""The errors of the gateway, in the shape that OpenAI's SDKs expect.

    GatewayError 500
    ├── BadRequest 400
    │   └── InvalidSource 400
    ├── Unauthenticated 401
    ├── Forbidden 403
    ├── ResourceNotFound 404
    ├── UnknownModel 404
    ├── UnknownAgent 404
    ├── MethodNotAllowed 405
    ├── RequestTimeout 408
    ├── RequestConflict 409
    ├── TooLarge 413
    ├── UrlTooLong 414
    ├── UnsupportedMedia 415
    ├── UpgradeRequired 426
    ├── RateLimited 429
    │   └── BudgetSpent 429
    ├── HeadTooLarge 431
    ├── LeftEarly 499
    ├── UpstreamRefused the upstream's own
    ├── UpstreamUnreachable 502
    │   └── UnreadableCompletion 502
    ├── UpstreamAuthError 502
    ├── StreamIncomplete 502
    │   └── UnreadableStream 502
    ├── UpstreamFailed 502
    ├── Unavailable 503
    │   └── StoreDown 503
    ├── UpstreamTimeout 504
    └── InsufficientStorage 507

`UnreadableAnswer` marks what cannot be read but can be passed on. Also: how error messages quote a
value and suggest a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import msgspec

Headers = Sequence[tuple[bytes, bytes]]
# Of a value in a message.
MAX_SHOWN_CHARACTERS = 60
# Of a value, before it is shortened.
MAX_INSPECTED_CHARACTERS = 4000

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


class GatewayError(Exception):
    """An error response: a status, and `{"error": {message, type, param, code}}`."""

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
        """Return the body of the error as the last event of a stream.

        It is always an object with `error`, by which the SDKs recognise a failure.
        """
        return self.body()


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """Return an error object as JSON text. Missing members are null."""
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}
    )


class BadRequest(GatewayError):
    status = 400
    type = "invalid_request_error"


class InvalidSource(BadRequest):
    """A Python tool's source that is none. line: where, or 0."""

    code = "invalid_source"

    def __init__(self, message: str, line: int = 0) -> None:
        place = f"`source`, line {line}" if line else "`source`"
        super().__init__(f"{place}: {message.rstrip('.')}.", param="source")
        self.line = line

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.type, "param": "source", "code": self.code}
        return msgspec.json.encode({"error": error | ({"line": self.line} if self.line else {})})


class Unauthenticated(GatewayError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(GatewayError):
    status = 403
    type = "permission_error"
    code = "forbidden"


class ResourceNotFound(GatewayError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class UnknownModel(GatewayError):
    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


class UnknownAgent(GatewayError):
    status = 404
    type = "invalid_request_error"
    code = "agent_not_found"


class MethodNotAllowed(GatewayError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class RequestTimeout(GatewayError):
    status = 408
    type = "timeout_error"
    code = "request_timeout"


class UrlTooLong(GatewayError):
    status = 414
    type = "invalid_request_error"
    code = "url_too_long"


class HeadTooLarge(GatewayError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class UpgradeRequired(GatewayError):
    status = 426
    type = "invalid_request_error"
    code = "websocket_not_supported"


class LeftEarly(GatewayError):
    """The client disconnected before it had sent its request.

    Nobody reads a response, so this only appears in the log.
    """

    status = 499
    type = "invalid_request_error"


class RequestConflict(GatewayError):
    status = 409
    type = "conflict_error"
    code = "conflict"


class TooLarge(GatewayError):
    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class UnsupportedMedia(GatewayError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class RateLimited(GatewayError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class BudgetSpent(RateLimited):
    """The key's budget is spent; nothing is available before its next period.

    SDKs and apps tell this code and type from a temporary rate limit.
    """

    type = "insufficient_quota"
    code = "insufficient_quota"


class UpstreamUnreachable(GatewayError):
    status = 502
    type = "upstream_error"
    code = "upstream_unreachable"


class UpstreamAuthError(GatewayError):
    status = 502
    type = "upstream_auth_error"
    code = "upstream_auth_error"


class StreamIncomplete(GatewayError):
    status = 502
    type = "upstream_error"
    code = "stream_incomplete"


class UnreadableAnswer(Exception):
    """What is particular to errors of reading: without memory the answer can be passed on."""


class UnreadableStream(StreamIncomplete, UnreadableAnswer):
    """An event that memory cannot read."""


class UnreadableCompletion(UpstreamUnreachable, UnreadableAnswer):
    """A whole answer that memory cannot read."""


class InsufficientStorage(GatewayError):
    """What is kept of a user would exceed the space they have."""

    status = 507
    type = "insufficient_storage"
    code = "files_quota"


class Unavailable(GatewayError):
    status = 503
    type = "server_error"
    code = "unavailable"


class StoreDown(Unavailable):
    """The memory's store does not answer. The message says what mends it."""


class UpstreamTimeout(GatewayError):
    """An upstream was too slow.

    code: the timer, one of connect_timeout, first_token_timeout, stream_idle_timeout and
    total_timeout.
    """

    status = 504
    type = "timeout_error"
    code = "total_timeout"


class UpstreamRefused(GatewayError):
    """An error response of the upstream, passed on verbatim: status, body and headers.

    date: the time by the upstream's clock, from its Date header. said: text for the log, if the
    body is no longer the upstream's.
    """

    def __init__(
        self, status: int, content: bytes, headers: Headers = (), date: bytes = b"", said: str = ""
    ) -> None:
        super().__init__(f"the upstream answered {status}", headers=headers)
        self.status = status
        self.content = content
        self.date = date
        self.said = said

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
    """An error that the upstream sent inside its stream, passed on verbatim."""

    status = 502

    def __init__(self, error: object) -> None:
        super().__init__("the upstream reported an error in its stream")
        self.error = error

    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.error})


def kind_of(value: object) -> str:
    """Return the JSON type of a value, for a message."""
    return KINDS.get(type(value), "a value")


def quote_value(value: object) -> str:
    """Return a value as a message shows it: on one line and shortened.

    Of a list or an object only its type is shown.
    """
    if isinstance(value, str):
        text = redact_url(value[:MAX_INSPECTED_CHARACTERS])
        if len(value) <= MAX_SHOWN_CHARACTERS:
            return repr(text)
        return f"{text[:MAX_SHOWN_CHARACTERS]!r}… ({len(value)} characters)"
    if isinstance(value, dict | list | tuple):
        return kind_of(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[:MAX_SHOWN_CHARACTERS]


def redact_url(url: str) -> str:
    """Return a URL without credentials and query, which may hold a key."""
    nameless = re.sub(r"(?:(?<=//)|\A(?=[^/@]*:))[^/]*@", "", url)
    return re.sub(r"(://[^?#]*)[?].*", r"\1?...", nameless, count=1, flags=re.DOTALL)


def did_you_mean(name: str, known: Iterable[str], listed: str = "") -> str:
    """Return a hint for an unknown name: the closest known name, or all of them.

    listed: says where all names are listed; without it they are named here.
    """
    names = sorted(known)
    if near := get_close_matches(name[:MAX_SHOWN_CHARACTERS].lower(), names, 1):
        return f", did you mean {near[0]}?{listed and f' {listed}'}"
    return f"; {listed or 'there are: ' + ', '.join(names)}"
