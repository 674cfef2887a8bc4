"""Errors as MCP clients read them: an HTTP status, and a JSON-RPC error in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import Forbidden, GatewayError, Unauthenticated

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNAUTHORISED = -32001
NO_RESOURCE = -32002
TRY_LATER = -32003
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
RETRIED_STATUSES = (429, 503)
CHALLENGE = (b"www-authenticate", b'Bearer realm="mnemogate"')
RequestId = str | int | None


class RpcError(GatewayError):
    """A JSON-RPC error. number: its code. request: the id of the request it answers."""

    type = "invalid_request_error"

    def __init__(
        self,
        status: int,
        number: int,
        message: str,
        data: Mapping[str, Any] | None = None,
        request: RequestId = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.number = number
        self.data = data
        self.request = request


class NotNamed(Forbidden):
    """A user or an agent that this key may not name."""


def number_of(error: GatewayError) -> int:
    """Return the JSON-RPC code of an error."""
    if isinstance(error, RpcError):
        return error.number
    if isinstance(error, Unauthenticated | NotNamed):
        return UNAUTHORISED
    if error.status in RETRIED_STATUSES:
        return TRY_LATER
    if error.status >= 500:
        return INTERNAL_ERROR
    return INVALID_REQUEST


def error_body(error: GatewayError, request: RequestId) -> bytes:
    """Return an error as a body. request: the id of what it answers, None where it is unknown."""
    members: dict[str, Any] = {"code": number_of(error), "message": error.message}
    if isinstance(error, RpcError):
        if request is None:
            request = error.request
        if error.data is not None:
            members["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request, "error": members})
