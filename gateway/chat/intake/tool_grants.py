"""Who grants the operator's tools to a request: as it begins, and before each of its calls."""

from __future__ import annotations

from gateway.auth.authenticator import KeyTools
from gateway.auth.user_resolver import header_text
from gateway.chat.intake.request import TurnInput
from gateway.routing.agents import Agent
from gateway.state import GatewayState
from gateway.tools.grants import HEADER, Grants, limits_of, narrowing_of
from gateway.tools.registry import GrantedTools
from memory import StoreUnavailable


def list_granted(gateway: GatewayState, request: TurnInput) -> tuple[str, ...]:
    """Return the patterns of tools that the key, the model or the agent grants."""
    return _join_patterns(gateway, request, request.agent_call.agent, request.principal.tools)


async def bound_grants(
    gateway: GatewayState, request: TurnInput, patterns: tuple[str, ...], header: str
) -> Grants:
    """Return what a request may use of what is granted to it. header: see `HEADER`."""
    try:
        policy = await _read_policy(gateway, request)
    except StoreUnavailable:
        # What is not known allows nothing.
        policy = ()
    limits = limits_of(request.principal.tools.most, policy, narrowing_of(header))
    return Grants(patterns, limits, request.mode == "read")


async def find_changed_tools(
    gateway: GatewayState, request: TurnInput, granted_tools: GrantedTools
) -> GrantedTools | None:
    """Return what is granted now; None while that is what the turn began with.

    What was taken back meanwhile is not run again: a grant, a policy, a tool, its definition.
    Where it cannot be read, what the turn began with holds. granted_tools: that.
    """
    gateway = gateway.newest
    agent = request.agent_call.agent
    tenant = request.principal.tenant
    key_tools = gateway.keys.find_tools(request.principal)
    try:
        if agent is not None:
            agent = await gateway.agents.find(tenant, agent.name)
        policy = await _read_policy(gateway, request)
    except StoreUnavailable:
        return None
    header = header_text(request.headers, HEADER) or ""
    patterns = _join_patterns(gateway, request, agent, key_tools)
    limits = limits_of(key_tools.most, policy, narrowing_of(header))
    grants = Grants(patterns, limits, request.mode == "read")
    present_tools = gateway.toolbox.catalog(tenant).find_granted(grants)
    return None if present_tools is granted_tools else present_tools


def _join_patterns(
    gateway: GatewayState, request: TurnInput, agent: Agent | None, key_tools: KeyTools
) -> tuple[str, ...]:
    settings = gateway.settings
    if settings.mode == "managed":
        key_patterns = key_tools.granted
    else:
        key_patterns = settings.toolbox.grant
    if agent is not None and request.agent_call.by_model:
        model = agent.settings.model
    else:
        model = request.model
    entry = gateway.router.find(model)
    of_model = entry[1].tools if entry is not None else ()
    of_agent = agent.settings.tools if agent is not None else ()
    return (*key_patterns, *of_model, *of_agent)


async def _read_policy(gateway: GatewayState, request: TurnInput) -> tuple[str, ...] | None:
    """Return the patterns that the user's policy allows, None for all. Raises StoreUnavailable."""
    if request.user is None:
        return None
    memory = gateway.memory
    user = (request.principal.tenant, request.user)
    return await memory.policies.tools(user, memory.policy.read_deadline)
