"""Leads requests of MCP clients to the door, which is loaded when the first one comes."""

from __future__ import annotations

import re
from typing import Any

from gateway.errors import GatewayError
from gateway.http.access_log import current_line
from gateway.http.asgi import Receive, Send
from gateway.state import GatewayState

is_for_door = re.compile(r"(?:/u/[^/]+)?/mcp\Z").match


def recognise(path: str) -> None:
    """Let errors that the gateway answers with before the door have its shape."""
    if is_for_door(path):
        current_line().error_body = error_body


def error_body(error: GatewayError, request: str) -> bytes:
    """Return an error as a body. request: its name."""
    # Most gateways never meet such a client.
    from gateway.mcp import errors

    return errors.error_body(error, None)


async def serve(gateway: GatewayState, scope: Any, receive: Receive, send: Send) -> None:
    """Answer a request over ASGI."""
    # Most gateways never meet such a client.
    from gateway.mcp import endpoint

    await endpoint.serve(gateway, scope, receive, send)
