"""What a Letta client asks of the server itself: its health."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from gateway.letta.call import LettaCall
from gateway.letta.route import LettaRoute
from gateway.wire.chat import Json


async def health(call: LettaCall) -> Json:
    """Tell that the server is there."""
    return {"status": "ok", "version": _version()}


def _version() -> str:
    try:
        return version("mnemogate")
    except PackageNotFoundError:
        # Run from its source.
        return "0"


ROUTES = (LettaRoute("GET", "health", health, "Alive", of_tenant=False),)
