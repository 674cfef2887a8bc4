"""Answers who asks whether the gateway is alive and ready, before the web framework is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.http.asgi import Send, respond
from gateway.state import GatewayState

# The status and what is said.
Answer = tuple[int, dict[str, Any]]


def tell_health(gateway: GatewayState) -> Answer:
    """Tell that the process is alive: nothing is touched."""
    return 200, {"status": "ok"}


def tell_readiness(gateway: GatewayState) -> Answer:
    """Tell what is degraded, and whether the gateway is about to end."""
    degraded = [] if gateway.memory.ready else ["memory"]
    if gateway.memory.recovery_log.held_records:
        degraded.append("recovery_file")
    if gateway.shared is not None and gateway.shared.degraded:
        degraded.append("redis")
    is_draining = gateway.process.draining
    status = "draining" if is_draining else "degraded" if degraded else "ok"
    return 503 if is_draining else 200, {"status": status, "degraded": degraded}


PROBES: dict[str, Callable[[GatewayState], Answer]] = {
    "/health": tell_health,
    "/ready": tell_readiness,
}


async def answer_probe(gateway: GatewayState, path: str, send: Send) -> None:
    """Answer a probe. path: one of `PROBES`."""
    status, report = PROBES[path](gateway)
    body = msgspec.json.encode(report)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await respond(send, status, body, headers)
