"""The operator's tools of a request: who grants them, and what counts their runs."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import msgspec

from gateway.auth.user_resolver import header_text
from gateway.chat.intake.capabilities import known_rejection
from gateway.chat.intake.reachable_agents import (
    agent_tools_of,
    may_reach_agents,
    register_agent_tools,
)
from gateway.chat.intake.request import TurnInput
from gateway.chat.intake.ruled_calls import approvals_of, rules_of
from gateway.chat.intake.skill_offer import add_skill_tool, may_open_skills
from gateway.chat.intake.tool_grants import (
    bound_grants,
    find_changed_tools,
    list_granted,
)
from gateway.limits.limiter import KeyQuota
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.router import Target
from gateway.state import GatewayState
from gateway.tools.agent_tools import RunTurn
from gateway.tools.grants import HEADER
from gateway.tools.kind import DecodedHeaders, ToolCaller
from gateway.tools.tool_runs import ToolRuns
from gateway.tools.turn_toolbox import ToolCircumstances, TurnToolbox
from memory import StoreUnavailable


def may_have_tools(gateway: GatewayState, request: TurnInput) -> bool:
    """Tell, at no cost, whether a request may have tools of the operator.

    Where this process knows of no tool at all, a grant is a reason to look for one that another
    worker was asked to make.
    """
    patterns = request.principal.tools.granted
    toolbox = gateway.toolbox
    may_be = patterns or toolbox.has_tools or toolbox.judges_memory
    has_agent = request.agent_call.agent is not None
    return bool(may_be or has_agent or may_open_skills(gateway, request))


class ToolTarget(msgspec.Struct, frozen=True):
    """To whom the request goes, and what lets an agent answer another."""

    forward: Dispatcher
    target: Target
    run_ask: RunTurn


async def toolbox_of(
    gateway: GatewayState, request: TurnInput, to: ToolTarget
) -> TurnToolbox | None:
    """Return the tools that a request may use; None where nothing is granted."""
    if request.mode not in ("full", "read"):
        return None
    rules, patterns = rules_of(gateway, request), list_granted(gateway, request)
    writes_to_agents, opens_skills = may_reach_agents(request), may_open_skills(gateway, request)
    if not (patterns or rules.governed_memory or writes_to_agents or opens_skills):
        return None
    await _learn_agents_tools(gateway, request)
    header = header_text(request.headers, HEADER) or ""
    grants = await bound_grants(gateway, request, patterns, header)
    catalog = gateway.toolbox.catalog(request.principal.tenant)
    tools = granted_tools = catalog.find_granted(grants)
    colleagues = None
    if writes_to_agents:
        colleagues = await agent_tools_of(gateway, request, to.run_ask)
        tools = tools.with_more(register_agent_tools(gateway, colleagues, grants))
    if opens_skills:
        tools = add_skill_tool(gateway, tools, grants)
    if not (tools.tools or header or rules.governed_memory):
        return None
    until = asyncio.get_running_loop().time() + _turn_seconds(gateway, request)
    agent = request.agent_call.agent
    circumstances = ToolCircumstances(
        gateway.toolbox,
        tools,
        request.facts.tool_names,
        header,
        rules,
        approvals_of(gateway, request, until),
        agent.settings.tools if agent is not None else (),
        _takes_tools(gateway, request, to.target),
        colleagues,
        partial(find_changed_tools, gateway, request, granted_tools),
    )
    costs = TurnCosts(gateway, request, to.forward)
    runs = ToolRuns(gateway.toolbox, tools.tools, _caller_of(request), until, costs)
    return TurnToolbox(circumstances, runs)


def _caller_of(request: TurnInput) -> ToolCaller:
    return ToolCaller(
        request.principal.tenant,
        request.user,
        request.agent,
        request.id,
        DecodedHeaders(request.headers),
        request.owner,
        request.project,
        None if request.search is None else request.search.limits,
    )


def _takes_tools(gateway: GatewayState, request: TurnInput, target: Target) -> bool:
    """Tell whether the request and its target take tools of the operator."""
    rejected = known_rejection(gateway, target.label)
    return rejected < 1 and target.supports_tools and request.facts.takes_tools


class TurnCosts:
    """Counts the runs of one request, and their cost; see `RunObserver`."""

    def __init__(self, gateway: GatewayState, request: TurnInput, forward: Dispatcher) -> None:
        self._limits = gateway.limits
        self._meter = forward.meter
        self._metrics = gateway.metrics.tools
        self._principal = request.principal

    def came(self) -> None:
        self._metrics.came()

    def began(self) -> None:
        self._metrics.began()

    def ended(self, entry: str, status: str, seconds: float | None) -> None:
        self._metrics.ended(entry, status, seconds)

    def count_refusal(self, entry: str) -> None:
        self._metrics.count_refusal(entry)

    async def reserve(self, cost_usd: float) -> bool:
        limits = self._principal.limits
        budget = self._principal.budget
        if not budget.usd:
            self.book(cost_usd)
            return True
        quota = KeyQuota(
            self._principal.key,
            limits.rpm,
            limits.tpm,
            limits.concurrent,
            budget.usd,
            budget.period,
        )
        spent_usd = await self._limits.spent_this_period(quota)
        # Nothing is awaited from here on: of two runs at a time, each sees what the other booked.
        if spent_usd + self._meter.tools_usd + cost_usd > budget.usd:
            return False
        self.book(cost_usd)
        return True

    def book(self, cost_usd: float) -> None:
        self._meter.tools_usd += cost_usd


async def _learn_agents_tools(gateway: GatewayState, request: TurnInput) -> None:
    """Read the tenant's tools anew, if the agent may have got one since they were read last.

    Another worker may have made the tool and given it to the agent a moment ago.
    """
    agent = request.agent_call.agent
    if agent is None or agent.row is None or not agent.settings.tools:
        return
    toolbox = gateway.toolbox
    if toolbox.tenant_tools.was_read_after(agent.row.updated_at):
        return
    tools = toolbox.catalog(request.principal.tenant).tools
    if all("*" in name or name in tools for name in agent.settings.tools):
        return
    with contextlib.suppress(StoreUnavailable, TimeoutError):
        async with asyncio.timeout(gateway.memory.policy.read_deadline):
            await toolbox.tenant_tools.read_lists()


def _turn_seconds(gateway: GatewayState, request: TurnInput) -> float:
    agent = request.agent_call.agent
    agent_seconds = None
    if agent is not None:
        agent_seconds = agent.settings.turn_seconds
    return agent_seconds or gateway.settings.memory.turn_seconds
