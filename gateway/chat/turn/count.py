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
    booking: tuple[UpstreamPath, RequestInfo],
) -> GatewayResponse:
    """Return the ASGI response to a request for a token count.

    booking: the upstream's path for it, below `/v1`, and what the books know of the turn.
    """
    # It costs nothing.
    forward.meter.guess = None
    path, entry = booking
    entry.path = path
    entry.output = 0
    begin = partial(_begin, gateway, request, forward, path)
    return accounted_response(gateway, forward, entry, begin)


async def _begin(
    gateway: GatewayState, request: TurnInput, forward: Dispatcher, path: UpstreamPath
) -> PassthroughProducer:
    """Compose the request; return what asks the upstream to count it."""
    content = request.raw_body
    state = "off"
    reason = request.off_reason
    if request.too_heavy:
        state = "degraded"
        reason = f"degraded: {request.too_heavy}"
    elif request.uses_memory:
        try:
            content = await _compose(gateway, request, forward)
            state = "ok"
            reason = ""
        except MemoryFault:
            state = "degraded"
            reason = UNAVAILABLE
    headers: Pairs = [(b"x-memory-status", state.encode())]
    if reason:
        headers += [(b"x-memory-reason", reason.encode())]
    counting_path = with_query(path, forward.query)
    passing = RelayedRequest(
        "POST", counting_path, content, own_headers=headers, started_at=request.started_at
    )
    return PassthroughProducer(forward, passing, stream=False)


async def _compose(gateway: GatewayState, request: TurnInput, forward: Dispatcher) -> bytes:
    """Return the request's body with memory in it. Raises MemoryFault."""
    target = await forward.first_target()
    ask = await ask_of(gateway, request, forward, target)
    session = await gateway.memory.begin(replace(ask, records=False))
    try:
        api = request.api
        prompt = session.prompt
        parts = RoundParts(
            request.body,
            prompt,
            api.hidden_rounds(),
            bool(prompt.tools),
            view=request.facts.view,
        )
        composed_body = api.compose(parts, target.label)
    finally:
        # Which lets go of it.
        await session.fail()
    return encode({k: v for k, v in composed_body.items() if k not in NOT_COUNTED})
