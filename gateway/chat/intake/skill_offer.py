"""Whether a request may open skills, which needs no grant: the operator switched them on."""

from __future__ import annotations

from gateway.chat.intake.request import TurnInput
from gateway.state import GatewayState
from gateway.tools.grants import Grants
from gateway.tools.registry import GrantedTools


def may_open_skills(gateway: GatewayState, request: TurnInput) -> bool:
    """Tell, at no cost, whether a request is offered skills where its user has some."""
    return gateway.memory.policy.skills.is_on and request.owner is not None


def add_skill_tool(gateway: GatewayState, tools: GrantedTools, grants: Grants) -> GrantedTools:
    """Return these tools with `skill_open`, unless a limit excludes it."""
    return tools.with_more(gateway.skills.register(gateway.toolbox, grants))
