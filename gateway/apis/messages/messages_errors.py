"""Errors of ours as Anthropic's SDKs read them. Pure."""

from __future__ import annotations

import msgspec

from gateway.apis.translation.messages_turns_from_chat import ERROR_TYPES
from gateway.errors import GatewayError, UpstreamFailed, UpstreamRefused
from gateway.wire.chat import Json, encode


def error_type(error: GatewayError) -> str:
    """Return what Anthropic calls an error of this status."""
    if isinstance(error, UpstreamFailed) and isinstance(error.error, dict):
        return str(error.error.get("type") or "api_error")
    status = error.status
    return ERROR_TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def error_body(error: GatewayError, request: str) -> bytes:
    """Return an error as a body; an upstream's own that has this shape stays as it came."""
    if isinstance(error, UpstreamRefused):
        upstream_body = _object(error.content)
        if upstream_body.get("type") == "error" or not (
            error.said or set(upstream_body) == {"error"}
        ):
            return error.content
    error_object = {"type": error_type(error), "message": _message(error)}
    return encode({"type": "error", "error": error_object, "request_id": request})


def _message(error: GatewayError) -> str:
    try:
        error_object = msgspec.json.decode(error.event())["error"]
        return str(error_object.get("message") or error.message)
    except (ValueError, TypeError, LookupError, AttributeError):
        return error.message


def _object(content: bytes) -> Json:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}
