"""A turn that a page of the gateway begins."""

from __future__ import annotations

from typing import Any

from gateway.chat.turn.asked_turn import collect_turn
from gateway.chat.turn.endpoint import serve
from gateway.http.asgi import Receive
from gateway.routing.inner_call import InnerAnswer, InnerCall
from gateway.state import GatewayState


async def run_inner_turn(
    gateway: GatewayState, scope: Any, receive: Receive, call: InnerCall
) -> InnerAnswer:
    """Let an agent answer a message. scope, receive: of the request that it is done for."""
    return await collect_turn(serve, gateway, scope, receive, call)
