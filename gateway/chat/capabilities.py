"""What a target accepts: our tools, or any addition at all.

Rejections are remembered for an hour.
"""

from __future__ import annotations

import time

import msgspec

from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.wire.chat import Json
from gateway.wires.base import RequestFacts

LACKS_SECONDS = 3600.0


class Capabilities(msgspec.Struct, frozen=True):
    """What may be added to a request for a target.

    tools: our tools. additions: anything at all. searches: the model can keep and find things by
    itself, so nothing needs to be searched for it unasked.
    """

    tools: bool
    additions: bool
    searches: bool


def capabilities_of(
    gateway: GatewayState, facts: RequestFacts, body: Json, target: Target
) -> Capabilities:
    """Tell what may be added to a request for this target."""
    rejected = known_rejection(gateway, target.label)
    return Capabilities(
        tools=rejected < 1 and offers_tools(gateway, facts, body, target),
        additions=rejected < 2,
        searches=rejected != 1 and target.supports_tools,
    )


def offers_tools(gateway: GatewayState, facts: RequestFacts, body: Json, target: Target) -> bool:
    """Tell whether the request, its target and the operator take our tools."""
    tools = gateway.settings.memory.tools
    if tools == "never" or (tools == "with_client_tools" and not body.get("tools")):
        return False
    return target.supports_tools and facts.takes_tools


def record_rejection(
    gateway: GatewayState, facts: RequestFacts, body: Json, target: Target
) -> None:
    """Remember that a target took the client's body but not ours.

    Next time it gets one without tools, after that one without any addition.
    """
    offered = offers_tools(gateway, facts, body, target)
    had_tools = offered and known_rejection(gateway, target.label) < 1
    gateway.lacks.put(target.label, (1 if had_tools else 2, time.monotonic()))


def known_rejection(gateway: GatewayState, label: str) -> int:
    """Return what the target is known to reject: 0 nothing, 1 tools, 2 any addition.

    Forgotten after an hour, since a passing fault looks the same.
    """
    level, at = gateway.lacks.get(label) or (0, 0.0)
    return level if time.monotonic() - at < LACKS_SECONDS else 0
