"""The base of answers to requests of a path with memory that are forwarded unchanged."""

from __future__ import annotations

from gateway.chat.intake.request import TurnInput
from gateway.relay.passthrough import PassthroughProducer, RelayedRequest
from gateway.routing.dispatcher import Dispatcher
from gateway.state import GatewayState


class RelayedTurn(PassthroughProducer):
    """The answer to a request of a path with memory that is forwarded unchanged."""

    def __init__(
        self,
        gateway: GatewayState,
        request: TurnInput,
        forward: Dispatcher,
        passing: RelayedRequest,
    ) -> None:
        super().__init__(forward, passing, request.wants_stream)
        self._gateway = gateway
        self._turn_input = request
