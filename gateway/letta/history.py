"""The one conversation of an agent: its items listed, begun and reset."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.letta.call import LettaCall
from gateway.routing.agents import Agent

CONVERSATION = "letta"  # its name among the conversations of the agent's memory


async def newest_ids(call: LettaCall, agent: Agent) -> list[str]:
    """Return the ids of the newest items, oldest first."""
    return []


def begin_history(call: LettaCall, messages: Any) -> Callable[[Agent], Awaitable[None]]:
    """Return what lets an agent's conversation begin with messages. Raises Unprocessable."""

    async def begin(agent: Agent) -> None:
        return None

    return begin
