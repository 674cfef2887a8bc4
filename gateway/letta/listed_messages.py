"""The messages of an agent: listed, and reset."""

from __future__ import annotations

from gateway.letta.agents import find_agent
from gateway.letta.call import LettaCall
from gateway.letta.history import list_items, reset_history
from gateway.letta.paging import MAX_LIMIT, order_of
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_state
from gateway.wire.chat import Json

# Items of a page.
USUAL = 100


async def messages(call: LettaCall, ident: str) -> list[Json]:
    """List the items of an agent's conversation, newest first."""
    agent = await find_agent(call, ident)
    kinds = call.words("include_return_message_types")
    is_newest_first = order_of(call, "desc") == "desc"
    limit = call.number("limit", USUAL, MAX_LIMIT)
    return await list_items(call, agent, frozenset(kinds) or None, limit, newest=is_newest_first)


async def reset(call: LettaCall, ident: str) -> Json:
    """Delete an agent's conversation; its blocks and passages stay."""
    call.check_manager()
    agent = await find_agent(call, ident)
    call.drop(await call.body())
    await reset_history(call, agent)
    return await agent_state(call, agent)


ROUTES = (
    LettaRoute("GET", "agents/*/messages", messages, "The messages of an agent"),
    LettaRoute("PATCH", "agents/*/reset-messages", reset, "Delete the messages of an agent"),
)
