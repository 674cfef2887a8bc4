"""`POST /mcp` and `/u/{user}/mcp`: one message a request, one JSON answer, nothing kept between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from gateway.auth.authenticator import Principal
from gateway.errors import (
    Forbidden,
    GatewayError,
    MethodNotAllowed,
    TooLarge,
    UnsupportedMedia,
)
from gateway.http.access_log import current_line
from gateway.http.asgi import (
    NOSNIFF,
    UNEXPECTED,
    ClientLeft,
    EarlyErrorResponse,
    Receive,
    Send,
    respond,
    respond_error,
)
from gateway.http.request_body import read_body
from gateway.limits.limiter import KeyQuota
from gateway.mcp import greeting, methods
from gateway.mcp.caller import DoorCaller, caller_of, check_tenant, principal_of
from gateway.mcp.errors import INVALID_REQUEST, RpcError, error_body
from gateway.mcp.naming import check_naming
from gateway.mcp.protocol import MAX_BYTES, RpcRequest, read_request, unknown_method, write_result
from gateway.state import GatewayState, headers_of, request_id
from gateway.wire.headers import encode_user_header

log = logging.getLogger("mnemogate")
MIB = 1 << 20
# Of one key at a time; more wait.
CALLS = 64
LEASE_SECONDS = 60.0
Pairs = list[tuple[bytes, bytes]]


async def serve(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    """Answer a request over ASGI, also if it fails."""
    base: Pairs = [(b"x-mnemogate-request-id", request_id(scope).encode())]
    try:
        await _answer(gateway, scope, receive, send)
    except TooLarge as e:
        await EarlyErrorResponse(e, base)(scope, receive, send)
    except GatewayError as e:
        await respond_error(send, e, base)
    except ClientLeft:
        raise
    except Exception:
        # A defect of ours. The client gets an answer with the request's id, the log the rest.
        log.exception("unexpected failure (%s)", request_id(scope))
        await respond_error(send, GatewayError(UNEXPECTED, code="internal_error"), base)


async def _answer(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    headers = headers_of(scope)
    _check_origin(gateway, scope, headers)
    if scope["method"] != "POST":
        raise MethodNotAllowed(
            "Send POST requests with one JSON-RPC message each. No stream is kept open here.",
            headers=[(b"allow", b"POST")],
        )
    principal = principal_of(gateway, headers)
    _check_media(headers)
    body = await _read_body(gateway, receive, headers)
    request = read_request(body, scope["headers"])
    if request.is_silent:
        await respond(send, 202, b"", [*_headers_out(scope), (b"content-length", b"0")])
        return
    current_line().error_body = partial(_error_body, request=request)
    await _answer_request(gateway, scope, send, principal, request)


def _error_body(error: GatewayError, _: str, *, request: RpcRequest) -> bytes:
    return error_body(error, request.id)


async def _answer_request(
    gateway: GatewayState, scope: Any, send: Send, principal: Principal, request: RpcRequest
) -> None:
    out = _headers_out(scope)
    result = greeting.greet(request)
    if result is not None:
        check_naming(gateway, scope, principal)
    else:
        if request.method not in methods.KNOWN:
            raise unknown_method(request)
        answer, more_headers = await _look(gateway, scope, principal, request)
        out += more_headers
        if answer.explain:
            out.append((b"x-memory-explain", answer.explain.encode()))
        result = answer.result
    body = write_result(request, result, greeting.server_info())
    out += [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(body)),
    ]
    await respond(send, 200, body, out)


async def _look(
    gateway: GatewayState, scope: Any, principal: Principal, request: RpcRequest
) -> tuple[methods.MethodAnswer, Pairs]:
    """Answer what is about a memory, within the limits of the key; return further headers."""
    await check_tenant(gateway, principal)
    if request.method not in methods.COUNTED:
        caller = await caller_of(gateway, scope, principal, request)
        answer = await methods.answer(gateway.memory, caller, request)
        return answer, _project_headers(caller)
    quota = KeyQuota(principal.key, rpm=principal.limits.rpm)
    ticket = await gateway.limits.admit(quota, 0, 0.0, LEASE_SECONDS)
    calls = gateway.process.calls
    name = (principal.tenant, principal.key)
    call_slots = calls.get(name)
    if call_slots is None:
        call_slots = calls[name] = asyncio.Semaphore(CALLS)
    try:
        async with call_slots:
            caller = await caller_of(gateway, scope, principal, request)
            answer = await methods.answer(gateway.memory, caller, request)
    finally:
        await gateway.limits.settle(ticket, 0, 0.0)
    gateway.worker.wake()
    current_line().memory = "ok" if caller.memory is not None else "off"
    return answer, [*ticket.headers(), *_project_headers(caller)]


def _project_headers(caller: DoorCaller) -> Pairs:
    """Return the header that names the project of a request, if it is in one."""
    if caller.memory is None or not caller.memory.scope.project:
        return []
    return [(b"x-memory-project", encode_user_header(caller.memory.scope.project))]


def _headers_out(scope: Any) -> Pairs:
    return [(b"x-mnemogate-request-id", request_id(scope).encode()), NOSNIFF]


def _check_origin(gateway: GatewayState, scope: Any, headers: Mapping[bytes, bytes]) -> None:
    """Raise Forbidden for a page of another origin, unless it is listed."""
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    if not origins:
        return
    origin = origins[0].decode("latin-1").strip()
    own_origin = f"{scope.get('scheme', 'http')}://{headers.get(b'host', b'').decode('latin-1')}"
    listed_origins = {o.rstrip("/") for o in gateway.settings.server.cors_origins}
    if len(origins) > 1 or (
        origin.rstrip("/") not in listed_origins
        and "*" not in listed_origins
        and origin != own_origin
    ):
        raise Forbidden(
            f"The origin {origin[:80]!r} is not listed in server.cors_origins, so pages of it may "
            "not use this memory."
        )


def _check_media(headers: Mapping[bytes, bytes]) -> None:
    """Raise UnsupportedMedia, or RpcError for a client that takes no JSON."""
    kind = headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if kind != b"application/json":
        raise UnsupportedMedia(
            f"The content-type is {kind[:60].decode('latin-1')!r}. Send application/json."
        )
    accept_header = headers.get(b"accept", b"*/*").lower()
    kinds = [
        part.split(b";", 1)[0].strip() for part in accept_header.split(b",") if not _is_no(part)
    ]
    if not {b"application/json", b"application/*", b"*/*"} & set(kinds):
        raise RpcError(
            406, INVALID_REQUEST, "Answers here are application/json, which `accept` leaves out."
        )


def _is_no(part: bytes) -> bool:
    """Tell whether a part of an Accept header refuses its kind."""
    weights = [x.strip()[2:] for x in part.split(b";")[1:] if x.strip().startswith(b"q=")]
    return any(not weight.strip(b"0.") for weight in weights)


async def _read_body(
    gateway: GatewayState, receive: Receive, headers: Mapping[bytes, bytes]
) -> bytes:
    limit = min(MAX_BYTES, int(gateway.settings.server.max_body_mib * MIB))
    try:
        return await read_body(receive, headers, limit)
    except TooLarge as e:
        raise TooLarge(
            f"The body is larger than {limit} bytes, the most that one message may have. Send "
            "less at once.",
            headers=e.headers,
        ) from e
