"""The agents that the agent of a request may write to or ask."""

from __future__ import annotations

import msgspec

from gateway.chat.intake.request import TurnInput
from gateway.state import GatewayState
from gateway.tools.agent_tools import (
    AGENT_ASK,
    AGENT_MESSAGE,
    LETTA_NAMES,
    AgentTools,
    AskingTurn,
    ReachableAgents,
    RunTurn,
    entry_settings,
    reachable_names,
)
from gateway.tools.grants import Grants
from gateway.tools.kinds import AGENTS
from gateway.tools.registry import RegisteredTool, ToolEntry


def may_reach_agents(request: TurnInput) -> bool:
    """Tell whether a request is offered tools that reach other agents."""
    agent = request.agent_call.agent
    if agent is None or request.mode != "full" or request.owner is None:
        return False
    return bool(agent.settings.may_message or agent.settings.may_ask)


async def agent_tools_of(gateway: GatewayState, request: TurnInput, run: RunTurn) -> AgentTools:
    """Return the tools by which the agent of a request reaches others."""
    agent = request.agent_call.agent
    principal = request.principal
    if agent is None or request.owner is None:
        raise ValueError("no agent is called, or nobody is named")
    agents = await gateway.agents.list_agents(principal)
    colleagues = [colleague for colleague in agents if colleague.name != agent.name]
    names = [colleague.name for colleague in colleagues]
    # The client's request is counted; those of its agents only cost what they use.
    unlimited = principal.limits.model_copy(update={"rpm": 0, "concurrent": 0})
    turn = AskingTurn(
        msgspec.structs.replace(principal, limits=unlimited),
        agent,
        request.user,
        request.owner,
        request.project,
        request.id,
        request.agent_call.chain,
        run,
    )
    operators = gateway.toolbox.names(principal.tenant)
    granted_names = [name for name in agent.settings.tools if name in LETTA_NAMES]
    reachable = ReachableAgents(
        {
            AGENT_MESSAGE: reachable_names(agent.settings.may_message, names),
            AGENT_ASK: reachable_names(agent.settings.may_ask, names),
        },
        {colleague.id: colleague.name for colleague in colleagues},
        [name for name in granted_names if name not in operators],
    )
    bounds = gateway.settings.delegation
    return AgentTools(turn, gateway.memory, gateway.agents, bounds, reachable)


def register_agent_tools(
    gateway: GatewayState, tools: AgentTools, grants: Grants
) -> dict[str, RegisteredTool]:
    """Return those of these tools that no limit excludes, as the registry has tools, by name."""
    entry = ToolEntry(AGENTS, entry_settings(gateway.settings.delegation), tools)
    return {
        tool.name: gateway.toolbox.register(entry, tool)
        for tool in tools.list_tools("")
        if grants.limits_allow(tool.name)
    }
