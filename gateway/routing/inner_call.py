"""A request to an agent that begins inside the gateway, and what came of it."""

from __future__ import annotations

import msgspec

from gateway.auth.authenticator import Principal
from gateway.routing.agents import Agent


class InnerCall(msgspec.Struct, frozen=True):
    """One message to an agent. conversation: its name, whose earlier messages the memory adds."""

    principal: Principal
    agent: Agent
    user: str
    conversation: str
    text: str


class InnerAnswer(msgspec.Struct, frozen=True):
    """The answer as a client would get it; status 0 if the client left before."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
