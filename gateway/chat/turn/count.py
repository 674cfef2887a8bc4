"""Counts the tokens that a request would have, memory included.

Nothing is written, so the request itself is not affected.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from gateway.apis.base import RoundParts
from gateway.chat.intake.memory_request import ask_of
from gateway.chat.intake.request import TurnInput
from gateway.http.paths import UpstreamPath, with_query
from gateway.http.response import GatewayResponse
from gateway.pipeline import RequestInfo, accounted_response
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState
from gateway.wire.chat import encode
from gateway.wire.headers import Pairs
from memory import MemoryFault

NOT_COUNTED = ("stream", "stream_options")
UNAVAILABLE = "degraded: the memory store is unavailable"


def count_response(
    gateway: GatewayState,
    request: TurnInput,
    forward: Dispatcher,
    counted: tuple[UpstreamPath, RequestInfo],
) -> GatewayResponse:
    """Return the ASGI response to a request for a token count.

    counted: the upstream's path for it, below `/v1`, and what the books know of the turn.
    """
    forward.meter.guess = None  # it costs nothing
    path, entry = counted
    entry.path, entry.output = path, 0
    begin = partial(_begin, gateway, request, forward, path)
    return accounted_response(gateway, forward, entry, begin)


async def _begin(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, path: UpstreamPath
) -> PassthroughProducer:
    """Compose the request; return what asks the upstream to count it."""
    content, state, reason = request.raw, "off", request.off_reason
    if request.too_heavy:
        state, reason = "degraded", f"degraded: {request.too_heavy}"
    elif request.uses_memory:
        try:
            content, state, reason = await _compose(gateway, request, forward), "ok", ""
        except MemoryFault:
            state, reason = "degraded", UNAVAILABLE
    named: Pairs = [(b"x-memory-status", state.encode())]
    named += [(b"x-memory-reason", reason.encode())] if reason else []
    sent = with_query(path, forward.query)
    passing = RelayedRequest("POST", sent, content, own_headers=named, started_at=request.started)
    return PassthroughProducer(forward, passing, stream=False)


async def _compose(gateway: GatewayState, request: TurnInput, forward: Dispatcher) -> bytes:
    """Return the request's body with memory in it. Raises MemoryFault."""
    target = await forward.first_target()
    ask = await ask_of(gateway, request, forward, target)
    session = await gateway.memory.begin(replace(ask, records=False))
    try:
        wire, prompt = request.wire, session.prompt
        parts = RoundParts(
            request.body,
            prompt,
            wire.hidden_rounds(),
            bool(prompt.offered),
            view=request.facts.view,
        )
        composed = wire.compose(parts, target.label)
    finally:
        await session.fail()  # which lets go of it
    return encode({k: v for k, v in composed.items() if k not in NOT_COUNTED})
