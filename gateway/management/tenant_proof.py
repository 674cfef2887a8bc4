"""Whether an upstream accepts the key of a tenant that is not seen yet (own-key mode)."""

from __future__ import annotations

import asyncio

from gateway.auth.authenticator import Principal
from gateway.errors import Forbidden, GatewayError, Unavailable
from gateway.http.paths import upstream_path
from gateway.pipeline import new_dispatcher
from gateway.routing.router import Route
from gateway.state import GatewayState
from gateway.upstream.base import UpstreamRequest
from gateway.wire.headers import upstream_headers

SECONDS = 10.0
LIST_BYTES = 4 << 20
REFUSED = (401, 403)


async def is_accepted_upstream(gateway: GatewayState, principal: Principal) -> bool:
    """Tell whether an upstream accepts a client's key, by one `GET /models`.

    Asked once while the process runs. Raises Forbidden for a key that is refused, Unavailable where
    nobody says.
    """
    if gateway.credentials.is_accepted(principal.authorization):
        return True
    target = gateway.router.default()
    forward = new_dispatcher(gateway, Route(((target,),)), {}, principal)
    headers = upstream_headers([], forward.caller.credential(target), None)
    try:
        async with asyncio.timeout(SECONDS):
            incoming = await target.upstream.send(
                UpstreamRequest(upstream_path("models"), None, headers, "GET")
            )
            await incoming.read(LIST_BYTES)
            await incoming.close()
    except (GatewayError, TimeoutError) as e:
        raise Unavailable(
            "The upstream does not answer, so whether it accepts this key is not known. Try again."
        ) from e
    if incoming.status in REFUSED:
        raise Forbidden("The upstream refuses this key, so nothing is kept for it.")
    if not 200 <= incoming.status < 300:
        return False
    gateway.credentials.accept(principal.authorization)
    return True
