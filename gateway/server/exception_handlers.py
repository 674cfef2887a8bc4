"""Turn exceptions into responses; the only place that does."""

from __future__ import annotations

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from gateway.errors import (
    BadRequest,
    GatewayError,
    MethodNotAllowed,
    ResourceNotFound,
    TooLarge,
    quote_value,
)
from gateway.http.access_log import current_line
from gateway.http.asgi import (
    NEEDS_STATUS,
    UNEXPECTED,
    EarlyErrorResponse,
    without_memory,
)
from gateway.state import request_id

log = logging.getLogger("mnemogate")


def error_response(request: Request[Any, Any, Any], error: GatewayError) -> Response[bytes]:
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in error.headers}
    headers["x-content-type-options"] = "nosniff"
    headers["x-mnemogate-request-id"] = request_id(request.scope)
    if NEEDS_STATUS(request.scope["path"].encode()):
        memory_headers = {k.decode(): v.decode() for k, v in without_memory(error)}
        headers = {**memory_headers, **headers}
    line = current_line()
    line.note_error(error)
    body = line.write_error(error)
    return Response(body, status_code=error.status, headers=headers, media_type="application/json")


class _RawResponse:
    """An early error response, in the shape that Litestar wants of exception handlers."""

    def __init__(self, refusal: EarlyErrorResponse) -> None:
        self._refusal = refusal

    def to_asgi_response(self, **_: Any) -> EarlyErrorResponse:
        return self._refusal


def too_large_response(request: Request[Any, Any, Any], error: TooLarge) -> Any:
    return _RawResponse(
        EarlyErrorResponse(error, [(b"x-mnemogate-request-id", request_id(request.scope).encode())])
    )


def http_exception_response(
    request: Request[Any, Any, Any], error: HTTPException
) -> Response[bytes]:
    path = request.scope["path"][:200]
    if error.status_code == 404:
        return error_response(request, ResourceNotFound(f"There is nothing at {path!r}."))
    if error.status_code == 405:
        allowed_methods = set((error.headers or {}).get("allow", "").split(", "))
        # The middleware answers it as a GET.
        allow = ", ".join(
            sorted(allowed_methods | ({"HEAD"} if "GET" in allowed_methods else set()))
        )
        return error_response(
            request,
            MethodNotAllowed(
                f"{request.scope['method']} is not possible at {path!r}: use {allow}.",
                headers=[(b"allow", allow.encode())],
            ),
        )
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        return error_response(request, _unfit(request, error.extra[0]))
    gateway_error = GatewayError(str(error.detail))
    gateway_error.status = error.status_code
    if error.status_code < 500:
        gateway_error.type = "invalid_request_error"
    else:
        gateway_error.type = "server_error"
    return error_response(request, gateway_error)


def _unfit(request: Request[Any, Any, Any], fault: Any) -> BadRequest:
    """Return the error for a query parameter with an unusable value."""
    name = str(fault.get("key"))
    value = request.query_params.get(name)
    return BadRequest(f"`{name}` is {quote_value(value)}: {fault.get('message')}.", param=name)


def unexpected_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("unexpected failure (%s)", request_id(request.scope), exc_info=error)
    return error_response(request, GatewayError(UNEXPECTED, code="internal_error"))


EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    GatewayError: error_response,
    TooLarge: too_large_response,
    HTTPException: http_exception_response,
    Exception: unexpected_response,
}
