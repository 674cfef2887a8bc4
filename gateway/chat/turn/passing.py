"""Forwards requests of a path with memory that do not use it."""

from __future__ import annotations

from urllib.parse import quote

from gateway.apis.responses.responses_format import RESPONSES
from gateway.chat.intake.request import TurnInput
from gateway.chat.turn.command_answer import CommandAnswer
from gateway.http.paths import PRINTABLE, with_query
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.storage.responses import COMMAND
from gateway.wire.headers import Pairs


def query_of(request: TurnInput) -> str:
    """Return the query of a request's URL, as it is forwarded."""
    return quote(request.query, safe=PRINTABLE) if request.query else ""


def relay_turn(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher
) -> PassthroughProducer:
    """Return what forwards the request unchanged, without memory."""
    if request.too_heavy:
        state, reason = ("degraded", f"degraded: {request.too_heavy}")
    else:
        state, reason = ("off", request.off_reason)
    status: Pairs = [(b"x-memory-status", state.encode()), (b"x-memory-reason", reason.encode())]
    passing = RelayedRequest(
        "POST",
        with_query(request.api.path, query_of(request)),
        request.raw_body,
        several=request.body.get("n") not in (None, 1),
        own_headers=status,
        started_at=request.started_at,
    )
    if request.api is RESPONSES and request.off_reason == COMMAND:
        if request.kept_items is not None:
            return CommandAnswer(gateway, request, forward, passing)
    elif request.api is RESPONSES and request.body.get("store") is not False:
        return relay_stored(gateway, request, forward, passing)
    return PassthroughProducer(forward, passing, request.wants_stream)


def relay_stored(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, passing: RelayedRequest
) -> PassthroughProducer:
    """Return what forwards a request unchanged whose provider stores the response."""
    if gateway.stored is None:
        return PassthroughProducer(forward, passing, request.wants_stream)
    relayed: PassthroughProducer = gateway.stored.relay(gateway, request, forward, passing)
    return relayed
