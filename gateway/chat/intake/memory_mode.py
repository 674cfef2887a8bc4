"""The mode in force: what a request's memory may do, by everybody who has a say in it.

The client's `X-Memory`, the key, the model and the user's own policy each allow something. What all
of them allow is done: a header can only lower what the others allow.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.auth.authenticator import Principal
from gateway.errors import BadRequest, Unavailable
from gateway.routing.router import Route
from gateway.state import GatewayState
from memory import MODES, StoreUnavailable, strictest

Headers = Mapping[bytes, bytes]
UNREADABLE = "the user's policy cannot be read"


class MemoryMode(msgspec.Struct, frozen=True):
    """What the memory may do. off_reason: why nothing, as `x-memory-reason` says it."""

    name: str
    off_reason: str = ""


FULL = MemoryMode("full")


def mode_of(headers: Headers) -> str:
    """Return the request's `X-Memory`. Raises BadRequest."""
    mode = headers.get(b"x-memory", b"full").decode("latin-1").strip().lower()
    if mode not in MODES:
        raise BadRequest(
            f"X-Memory is {mode[:40]!r}: use one of {', '.join(MODES)}.", param="x-memory"
        )
    return mode


def asks_for_all(headers: Headers) -> bool:
    """Tell whether a request itself says that it wants all of memory. Raises BadRequest."""
    return b"x-memory" in headers and mode_of(headers) == "full"


def mode_at_most(headers: Headers, principal: Principal) -> MemoryMode:
    """Return what the client asks for and its key allows. Raises BadRequest."""
    if b"x-memory" not in headers and principal.memory == "full":
        return FULL
    client_mode = mode_of(headers)
    if client_mode == "off":
        return MemoryMode("off", "request")
    return lower(MemoryMode(client_mode), principal.memory)


def lower(mode: MemoryMode, *policies: str) -> MemoryMode:
    """Return what these policies leave of a mode."""
    if mode.name == "off" or policies == ("full",):
        return mode
    name = strictest(mode.name, *policies)
    return MemoryMode(name, "policy" if name == "off" else "")


async def mode_in_force(
    gateway: GatewayState, mode: MemoryMode, principal: Principal, route: Route, user: str | None
) -> MemoryMode:
    """Return what the model's and the user's policies leave of a mode.

    Raises Unavailable if the user's cannot be read: the caller decides what that means.
    """
    if route.memory != "full":
        mode = lower(mode, route.memory)
    if mode.name == "off" or user is None:
        return mode
    try:
        user_mode = await gateway.memory.user_policy(principal.tenant, user)
    except StoreUnavailable as e:
        raise Unavailable(f"The memory is unavailable: {UNREADABLE}. Try again shortly.") from e
    if user_mode == "full":
        return mode
    return lower(mode, user_mode)
