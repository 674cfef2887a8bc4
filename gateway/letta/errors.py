"""Errors in the shape that Letta clients read: `{"detail": "<sentence>", "error": {...}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import (
    BadRequest,
    GatewayError,
    RateLimited,
    UpstreamFailed,
    UpstreamRefused,
    kind_of,
)
from gateway.letta.ids import with_letta_ids
from gateway.wire.chat import encode, object_or_empty

# The client tries these again otherwise.
STAYS = (b"x-should-retry", b"false")
NOT_AGAIN = (409, 501)
# Members of a profile by the names that the client gave them.
PARAMS = {
    "instruction": "system",
    "title": "name",
    "context_window": "context_window_limit",
    "blocks": "memory_blocks",
    "source": "source_code",
}


class Unprocessable(GatewayError):
    """A request that cannot be taken as it is."""

    status = 422
    type = "invalid_request_error"
    code = "unprocessable"


NOUNS: Mapping[type, str] = {str: "a string", dict: "an object", list: "a list", bool: "a boolean"}


def wrong_type(name: str, value: object, kind: type) -> Unprocessable:
    """Return the error for a member of a wrong type."""
    return Unprocessable(f"`{name}` must be {NOUNS[kind]}, not {kind_of(value)}.", param=name)


class AgentBusy(RateLimited):
    """As many messages wait for an agent as may."""

    code = "agent_busy"


class NotSupported(GatewayError):
    """A path of Letta's server that has no counterpart here."""

    status = 501
    type = "invalid_request_error"
    code = "not_supported"


def as_unprocessable(error: BadRequest) -> Unprocessable:
    """Return a refusal of ours as Letta's server would give it."""
    member, dot, submember = (error.param or "").partition(".")
    param = f"{PARAMS.get(member, member)}{dot}{submember}" or None
    message = error.message
    if param and member in PARAMS:
        message = message.replace(member, PARAMS[member], 1)
    return Unprocessable(message, code=error.code, param=param, headers=error.headers)


def final(error: GatewayError) -> GatewayError:
    """Return an error with a word to the client where it must not try again."""
    if error.status in NOT_AGAIN and not isinstance(error, UpstreamRefused):
        error.headers = (*error.headers, STAYS)
    return error


def error_body(error: GatewayError, request: str) -> bytes:
    """Return an error as a body. request: its name."""
    detail, members = describe_error(error)
    return encode({"detail": detail, "error": members})


def describe_error(error: GatewayError) -> tuple[str, dict[str, Any]]:
    """Return the sentence of an error, and its members."""
    own_message = with_letta_ids(error.message)
    own_members = {
        "message": own_message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, UpstreamRefused):
        upstream_body = object_or_empty(error.content)
    elif isinstance(error, UpstreamFailed):
        upstream_body = {"error": error.error}
    else:
        return own_message, own_members
    upstream_error = upstream_body.get("error")
    if not isinstance(upstream_error, dict):
        text = (
            upstream_error
            if isinstance(upstream_error, str)
            else upstream_body.get("message") or upstream_body.get("detail")
        )
        content = error.content if isinstance(error, UpstreamRefused) else b""
        excerpt = " ".join(content[:300].decode("utf-8", "replace").split())
        sentence = text if isinstance(text, str) and text else excerpt or error.message
        return sentence, {**own_members, "message": sentence, "type": "upstream_error"}
    members = {**own_members, **{k: v for k, v in upstream_error.items() if k in own_members}}
    sentence = members["message"] if isinstance(members["message"], str) else error.message
    return sentence, {**members, "message": sentence}
