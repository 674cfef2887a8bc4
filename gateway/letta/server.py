"""What a Letta client asks of the server itself: its health."""

from __future__ import annotations

from gateway.letta.call import LettaCall
from gateway.letta.route import LettaRoute
from gateway.wire.chat import Json
from memory import installed_version


async def health(call: LettaCall) -> Json:
    """Tell that the server is there."""
    return {"status": "ok", "version": installed_version() or "0"}


ROUTES = (LettaRoute("GET", "health", health, "Alive", of_tenant=False),)
