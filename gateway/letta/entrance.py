"""Leads the requests of Letta clients to the door, which is loaded when the first one comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.http.access_log import current_line
from gateway.http.asgi import Receive, Send
from gateway.letta.errors import error_body
from gateway.letta.paths import BASE, letta_path
from gateway.state import GatewayState


def recognise(gateway: GatewayState, scope: Any, headers: Mapping[bytes, bytes]) -> None:
    """Lead a Letta client's request below `/letta`, wherever it was sent."""
    if gateway.settings.server.letta and (path := letta_path(scope["path"], headers)) is not None:
        scope["path"] = path
        current_line().error_body = error_body


def is_for_door(gateway: GatewayState, path: str) -> bool:
    """Tell whether the door answers a path."""
    return path.startswith(BASE) and gateway.settings.server.letta


async def serve(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    """Answer a request over ASGI."""
    # Most gateways never meet such a client.
    from gateway.letta import door

    await door.serve(gateway, scope, receive, send)
