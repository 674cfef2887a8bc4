"""The tools of an agent: listed, attached, detached."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.errors import RequestConflict
from gateway.letta.agents import edit_profile, find_agent
from gateway.letta.call import LettaCall
from gateway.letta.paging import page_of
from gateway.letta.profile import DOOR, door_members
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_state
from gateway.letta.tool_catalog import (
    OURS,
    grant_tools,
    is_of_memory,
    learn_tools,
    name_of_id,
    tool_id,
    tools_of,
)
from gateway.routing.agents import Agent
from gateway.tools.grants import matches
from gateway.wire.chat import Json


async def agent_tools(call: LettaCall, ident: str) -> list[Json]:
    """List the tools of an agent."""
    agent = await find_agent(call, ident)
    names = door_members(agent).tools
    profile = agent.settings
    agent_tools = tools_of(call, names, profile.tools, memory_tools=profile.memory_tools)
    return page_of(call, agent_tools)


async def attach_tool(call: LettaCall, ident: str, tool: str) -> Json:
    """Grant an agent a tool; those of the memory are granted together."""
    await learn_tools(call, ids=[tool])
    name = name_of_id(call, tool)

    async def change(agent: Agent, before: Json) -> Json:
        names = door_members(agent).tools
        if name in OURS:
            tool_names = names
        else:
            tool_names = list(dict.fromkeys([*names, name]))
        has_memory_tools = bool(before.get("memory_tools", True)) or is_of_memory(name)
        tools = grant_tools(call, [name], before.get("tools", ()))
        return _with_tools(agent, before, tool_names) | {
            "memory_tools": has_memory_tools,
            "tools": tools,
        }

    return await agent_state(call, await edit_profile(call, ident, change))


async def detach_tool(call: LettaCall, ident: str, tool: str) -> Json:
    """Take a tool from an agent; those of the memory are taken by `memory_tools` alone."""
    await learn_tools(call, ids=[tool])
    if (name := _attached_name(await find_agent(call, ident), tool)) is None:
        name = name_of_id(call, tool)
    if name in OURS:
        call.drop([name])

    async def change(agent: Agent, before: Json) -> Json:
        names = [n for n in door_members(agent).tools if n != name]
        tools = [pattern for pattern in before.get("tools", ()) if pattern != name]
        _check_gone(name, tools)
        return _with_tools(agent, before, names) | {"tools": tools}

    return await agent_state(call, await edit_profile(call, ident, change))


def _attached_name(agent: Agent, ident: str) -> str | None:
    """Return the name of a tool that an agent has, also of one that is there no longer."""
    names = (*door_members(agent).tools, *agent.settings.tools)
    return next((name for name in names if tool_id(name) == ident), None)


def _check_gone(name: str, patterns: Iterable[str]) -> None:
    """Raise RequestConflict if a pattern still grants a tool."""
    for pattern in patterns:
        if matches(pattern, name):
            raise RequestConflict(
                f"The agent has {name!r} by the pattern {pattern!r} of its profile: change that, "
                "with PATCH /memory/v1/agents/{name}.",
                code="granted_by_pattern",
            )


def _with_tools(agent: Agent, before: Json, names: list[str]) -> Json:
    members = msgspec.structs.replace(door_members(agent), tools=names)
    metadata = {**(before.get("metadata") or {}), DOOR: msgspec.to_builtins(members)}
    return {**before, "metadata": metadata}


ROUTES = (
    LettaRoute("GET", "agents/*/tools", agent_tools, "The tools of an agent"),
    LettaRoute("PATCH", "agents/*/tools/attach/*", attach_tool, "Grant a tool"),
    LettaRoute("PATCH", "agents/*/tools/detach/*", detach_tool, "Take a tool back"),
)
