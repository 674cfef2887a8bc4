"""A request to an agent that begins inside the gateway, and what came of it."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.auth.authenticator import Principal
from gateway.routing.agents import Agent


class AskBudget:
    """How many asks the tree of one client's request may still begin."""

    def __init__(self, asks_left: int) -> None:
        self.asks_left = asks_left


class AskChain(msgspec.Struct, frozen=True):
    """Who waits for the agent that is asked. names: from the client's agent on.

    budget: of the whole tree. parent: id of the client's request. asked_by: what the explain record
    of the asked turn tells of the one that asks.
    """

    names: tuple[str, ...]
    budget: AskBudget
    parent: str
    asked_by: dict[str, Any]

    @property
    def depth(self) -> int:
        """How many asks lead to this turn."""
        return len(self.names)


class InnerCall(msgspec.Struct, frozen=True):
    """One message to an agent. conversation: its name, whose earlier messages the memory adds.

    chain: of an ask by another agent. project: in which it is asked.
    """

    principal: Principal
    agent: Agent
    user: str
    conversation: str
    text: str
    chain: AskChain | None = None
    project: str = ""


class InnerAnswer(msgspec.Struct, frozen=True):
    """The answer as a client would get it; status 0 if the client left before."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    cost_usd: float | None = None
