"""The routes of `/health`, `/ready` and `/metrics`."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from gateway.errors import ResourceNotFound
from gateway.server.probes import tell_health, tell_readiness
from gateway.state import GatewayState
from gateway.telemetry.metrics import CONTENT_TYPE
from gateway.wire.headers import merge_headers


# Both are answered before the framework; here they stand for its schema.
@get("/health", summary="Alive: needs no key and touches nothing")
async def health(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return tell_health(request.app.state.gateway)[1]


@get("/ready", summary="Ready, and what is degraded")
async def ready(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    status, readiness = tell_readiness(request.app.state.gateway)
    return Response(readiness, status_code=status)


@get("/metrics", summary="Prometheus metrics", include_in_schema=False)
async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the metrics of this process, or of all that share PROMETHEUS_MULTIPROC_DIR.

    Raises ResourceNotFound where they are off; Unauthenticated, Forbidden for who may not read
    them.
    """
    gateway: GatewayState = request.app.state.gateway
    readers = gateway.settings.telemetry.metrics
    if readers == "off":
        raise ResourceNotFound("Metrics are off: set telemetry.metrics in the configuration.")
    headers = merge_headers(request.scope["headers"])
    if readers == "key" or (readers == "auto" and not gateway.is_from_here(request.scope, headers)):
        gateway.keys.operator(headers)
    gauges = {
        # Without this one.
        "requests_in_progress": gateway.process.busy - 1,
        "memory_ready": float(gateway.memory.ready),
        "usage_records_dropped": gateway.usage.dropped_records,
        "unwritten_turns": gateway.memory.recovery_log.held_records,
        "turns_dropped": gateway.memory.recovery_log.lost_records,
    }
    states = {name: not entry.state for name, entry in gateway.toolbox.entries.items()}
    gateway.metrics.tools.set_states(states)
    return Response(gateway.metrics.render(gauges), headers={"content-type": CONTENT_TYPE})


HANDLERS = (health, ready, metrics)
