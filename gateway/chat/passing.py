"""Forwards requests of a path with memory that do not use it."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from gateway.chat.command_answer import CommandAnswer
from gateway.chat.relayed_names import check_content
from gateway.chat.request import TurnInput
from gateway.chat.stored_passthrough import StoredPassthrough
from gateway.errors import GatewayError
from gateway.http.asgi import Send, respond_error
from gateway.http.paths import PRINTABLE, with_query
from gateway.relay.endpoint import pass_on
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState, request_id
from gateway.storage.responses import COMMAND
from gateway.wire.headers import Pairs
from gateway.wires.responses.format import RESPONSES


def query_of(request: TurnInput) -> str:
    """Return the query of a request's URL, as it is forwarded."""
    return quote(request.query, safe=PRINTABLE)


async def relay_nameless(gateway: GatewayState, scope: Any, body: bytes, send: Send) -> None:
    """Relay a request without a model: the provider may know it (a stored prompt)."""
    plain = [h for h in scope["headers"] if h[0] != b"content-encoding"]
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (message := next(messages, None)) is not None:
            return message
        return await asyncio.Event().wait()

    name = [(b"x-mnemogate-request-id", request_id(scope).encode())]
    try:
        response = await pass_on(gateway, {**scope, "headers": plain}, receive, check_content)
    except GatewayError as e:
        await respond_error(send, e, name)
    else:
        await response(scope, receive, send)


def relay_turn(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher
) -> PassthroughProducer:
    """Return what forwards the request unchanged, without memory."""
    state, reason = (
        ("degraded", f"degraded: {request.too_heavy}")
        if request.too_heavy
        else ("off", request.off_reason)
    )
    status: Pairs = [(b"x-memory-status", state.encode()), (b"x-memory-reason", reason.encode())]
    passing = RelayedRequest(
        "POST",
        with_query(request.wire.path, query_of(request)),
        request.raw,
        several=request.body.get("n") not in (None, 1),
        named=status,
        started=request.started,
    )
    if request.wire is RESPONSES and request.off_reason == COMMAND:
        if request.kept is not None:
            return CommandAnswer(gateway, request, forward, passing)
    elif request.wire is RESPONSES and request.body.get("store") is not False:
        return StoredPassthrough(gateway, request, forward, passing)
    return PassthroughProducer(forward, passing, request.wants_stream)
