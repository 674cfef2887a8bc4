"""What a target accepts: our tools, single additions of ours, or any at all.

Rejections are remembered for an hour. A refusal is about what it names: a target that refuses an
`include` is still offered our tools.
"""

from __future__ import annotations

import re
import time

import msgspec

from gateway.apis.base import RequestFacts
from gateway.errors import UpstreamRefused
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.wire.chat import Json

LACKS_SECONDS = 3600.0
# Single additions of ours: what of a refusal names them.
INCLUDE = "include"
USAGE = "stream_options"
STATE = "state"
IMAGES = "images of tools"
SINGLE = {
    INCLUDE: re.compile(r"(?i)\binclude\b|encrypted[_ ]content"),
    USAGE: re.compile(r"(?i)stream_options|include_usage"),
}
# Of a refusal that are looked into.
ERROR_BYTES = 4000
GIVEN_UP = {
    1: "the upstream refused the memory tools within the last hour, so they were not offered",
    2: "the upstream refused the memory within the last hour, so none was added",
}


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
    rejected = 0
    if gateway.lacks.byte_count:
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
    offers_memory = offers_tools(gateway, facts, body, target)
    had_tools = offers_memory and known_rejection(gateway, target.label) < 1
    gateway.lacks.put(target.label, (1 if had_tools else 2, time.monotonic()))


def known_rejection(gateway: GatewayState, label: str) -> int:
    """Return what the target is known to reject: 0 nothing, 1 tools, 2 any addition.

    Forgotten after an hour, since a passing fault looks the same.
    """
    # As it nearly always is.
    if not gateway.lacks.byte_count:
        return 0
    level, at = gateway.lacks.get(label) or (0, 0.0)
    if time.monotonic() - at < LACKS_SECONDS:
        return level
    return 0


def named_addition(refusal: UpstreamRefused) -> str:
    """Return which single addition of ours a refusal is about, "" for none."""
    text = refusal.content[:ERROR_BYTES].decode("utf-8", "replace")
    # `stream_options.include_usage` also has the other's word.
    return next((name for name in (USAGE, INCLUDE) if SINGLE[name].search(text)), "")


def asks_itself(body: Json, name: str) -> bool:
    """Tell whether the client asks for what would be an addition of ours."""
    value = body.get(name)
    # Beside its other members, that one is ours.
    if name == USAGE:
        return isinstance(value, dict) and bool(value.get("include_usage"))
    return bool(value)


def record_addition(gateway: GatewayState, target: Target, name: str) -> None:
    """Remember that a target took a request only without one addition of ours."""
    gateway.lacks.put(f"{target.label}\0{name}", (1, time.monotonic()))


def refused_additions(gateway: GatewayState, target: Target) -> frozenset[str]:
    """Return the single additions that a target is known to refuse."""
    if not gateway.lacks.byte_count:
        return frozenset()
    names = (INCLUDE, USAGE, STATE, IMAGES)
    return frozenset(n for n in names if known_rejection(gateway, f"{target.label}\0{n}"))


def told_rejection(gateway: GatewayState, facts: RequestFacts, body: Json, target: Target) -> str:
    """Return what memory gives up at a target because of an earlier refusal, "" for nothing."""
    level = known_rejection(gateway, target.label)
    if level == 1 and not offers_tools(gateway, facts, body, target):
        return ""
    return GIVEN_UP.get(level, "")
