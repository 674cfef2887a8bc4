"""What judges the calls of a request, and who asks people about them."""

from __future__ import annotations

from gateway.chat.intake.request import TurnInput
from gateway.state import GatewayState
from gateway.tools.approval_wait import CallApprovals
from gateway.tools.chain_rules import ToolChain
from gateway.tools.verdicts import FixedPolicy, RunRules
from memory.management.approvals import ApprovalRequest


def rules_of(gateway: GatewayState, request: TurnInput) -> RunRules:
    """Return what judges the calls of a request."""
    toolbox = gateway.settings.toolbox
    agent = request.agent_call.agent
    rules = toolbox.parsed_rules
    if agent is not None:
        rules += agent.settings.parsed_rules
    if not rules:
        return FixedPolicy(allows=toolbox.policy == "allow")
    return ToolChain(rules, toolbox.policy, withholds=toolbox.withhold == "schema")


def approvals_of(gateway: GatewayState, request: TurnInput, until: float) -> CallApprovals:
    """Return what asks people about calls. until: the loop's time by which the turn ends."""
    approval = ApprovalRequest(
        request.principal.tenant,
        request.user,
        request.agent,
        request.conversation or "",
        request.id,
        tool="",
        arguments="",
        seconds=gateway.settings.toolbox.approval_seconds,
    )
    return CallApprovals(gateway.memory, approval, until)
