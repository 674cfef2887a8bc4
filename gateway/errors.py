"""What the gateway says when it cannot answer, in the shape OpenAI's SDKs expect.

GatewayError
├── BadRequest 400 · Unauthenticated 401 · Forbidden 403 · NotFound 404 · UnknownModel 404 · MethodNotAllowed 405
├── Conflict 409 · TooLarge 413 · UnsupportedMedia 415 · RateLimited 429 > BudgetSpent
├── UpstreamUnreachable 502 · UpstreamAuthError 502 · StreamIncomplete 502
├── Unavailable 503
└── UpstreamTimeout 504
UpstreamRefused carries an upstream's own status and body, verbatim; UpstreamFailed the error it sent inside a stream.
"""
from __future__ import annotations

from collections.abc import Sequence

import msgspec

Headers = Sequence[tuple[bytes, bytes]]


class GatewayError(Exception):
    """An answer that is an error: status, and `{"error": {message, type, param, code}}`."""

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None, headers: Headers = ()) -> None:
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
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


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
    """The upstream's own refusal, passed on as it came: its status, its body, its headers."""

    def __init__(self, status: int, content: bytes, headers: Headers = ()) -> None:
        super().__init__(f"the upstream answered {status}", headers=headers)
        self.status = status
        self.content = content

    def body(self) -> bytes:
        return self.content

    def event(self) -> bytes:
        try:
            if msgspec.json.decode(self.content)["error"]:
                return self.content
        except (ValueError, TypeError, LookupError, RecursionError):
            pass
        text = " ".join(self.content[:300].decode("utf-8", "replace").split())
        return error_body(f"The upstream answered {self.status}: {text or 'no text'}", "upstream_error", "upstream_error")


class UpstreamFailed(GatewayError):
    """An error the upstream sent inside its stream, passed on as it came."""

    status = 502

    def __init__(self, error: object) -> None:
        super().__init__("the upstream reported an error in its stream")
        self.error = error

    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.error})
