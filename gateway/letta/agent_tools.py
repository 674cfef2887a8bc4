"""The tools of an agent: listed, attached, detached."""

from __future__ import annotations

import msgspec

from gateway.letta.agents import edit_profile, find_agent
from gateway.letta.call import LettaCall
from gateway.letta.paging import page_of
from gateway.letta.profile import DOOR, door_members
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_state
from gateway.letta.tools import OURS, is_of_memory, names_of_ids, tools_of
from gateway.routing.agents import Agent
from gateway.wire.chat import Json


async def agent_tools(call: LettaCall, ident: str) -> list[Json]:
    """List the tools of an agent."""
    agent = await find_agent(call, ident)
    names = door_members(agent).tools
    return page_of(call, tools_of(names, memory_tools=agent.settings.memory_tools))


async def attach_tool(call: LettaCall, ident: str, tool: str) -> Json:
    """Grant an agent a tool; those of the memory are granted together."""
    (name,) = names_of_ids([tool])

    async def change(agent: Agent, before: Json) -> Json:
        names = door_members(agent).tools
        added = names if name in OURS else list(dict.fromkeys([*names, name]))
        granted = bool(before.get("memory_tools", True)) or is_of_memory(name)
        return _with_tools(agent, before, added) | {"memory_tools": granted}

    return await agent_state(call, await edit_profile(call, ident, change))


async def detach_tool(call: LettaCall, ident: str, tool: str) -> Json:
    """Take a tool from an agent; those of the memory are taken by `memory_tools` alone."""
    (name,) = names_of_ids([tool])
    if name in OURS:
        call.drop([name])

    async def change(agent: Agent, before: Json) -> Json:
        return _with_tools(agent, before, [n for n in door_members(agent).tools if n != name])

    return await agent_state(call, await edit_profile(call, ident, change))


def _with_tools(agent: Agent, before: Json, names: list[str]) -> Json:
    kept = msgspec.structs.replace(door_members(agent), tools=names)
    metadata = {**(before.get("metadata") or {}), DOOR: msgspec.to_builtins(kept)}
    return {**before, "metadata": metadata}


ROUTES = (
    LettaRoute("GET", "agents/*/tools", agent_tools, "The tools of an agent"),
    LettaRoute("PATCH", "agents/*/tools/attach/*", attach_tool, "Grant a tool"),
    LettaRoute("PATCH", "agents/*/tools/detach/*", detach_tool, "Take a tool back"),
)
