"""The agent that a request calls, by its model or its header, and what its profile changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.apis.base import ApiFormat
from gateway.apis.profile_members import ProfileMembers, with_profile
from gateway.auth.authenticator import Principal
from gateway.chat.intake.body import ReadBody
from gateway.chat.intake.memory_mode import MemoryMode, lower
from gateway.chat.intake.request_headers import Headers, agent_of
from gateway.config.agents import AgentParameters
from gateway.errors import BadRequest, Unavailable
from gateway.routing.agents import (
    Agent,
    check_call,
    named_agent,
    own_id,
    unknown_agent,
)
from gateway.routing.inner_call import AskChain
from gateway.state import GatewayState
from memory import StoreUnavailable

HEADER = b"x-memory-agent"
JSON_FORMATS = ("json_object", "json_schema")


class CalledAgent(msgspec.Struct, frozen=True):
    """The agent of a request. agent: None where it has no profile. by_model: its model names it.

    chain: of the agents that wait for it, None where a client calls it.
    """

    agent: Agent | None = None
    by_model: bool = False
    chain: AskChain | None = None

    @property
    def model(self) -> str:
        """The model of the agent, "" where the request names one itself."""
        if self.agent is not None and self.by_model:
            return self.agent.settings.model
        return ""

    def name(self, headers: Headers) -> str:
        """Return the agent by which the memory knows it. Raises BadRequest."""
        if self.agent is not None:
            return self.agent.name
        return agent_of(headers)

    def apply(
        self, api: ApiFormat, mode: MemoryMode, parsed_body: ReadBody
    ) -> tuple[MemoryMode, ReadBody, Sequence[str]]:
        """Return the mode and the body as the profile has them.

        And the members of the request that it may not set. With memory off, nothing is changed.
        Raises BadRequest.
        """
        if self.agent is None:
            return mode, parsed_body, ()
        profile = self.agent.settings
        body = parsed_body.members
        if not profile.client_tools and (body.get("tools") or body.get("functions")):
            raise BadRequest(
                f"The agent {self.agent.name!r} takes no tools of the client. Leave out `tools`.",
                code="client_tools_not_allowed",
                param="tools",
            )
        mode = lower(mode, profile.memory)
        if mode.name == "off" or parsed_body.facts is None:
            return mode, parsed_body, ()
        members = self._members(mode)
        members_with_profile, dropped_members = with_profile(
            api.name, body, members, profile.model if self.by_model else body["model"]
        )
        facts = parsed_body.facts
        if (members.values.get("response_format") or {}).get("type") in JSON_FORMATS:
            # As the format's own facts have it.
            wants = api.name != "responses"
            facts = msgspec.structs.replace(facts, wants_json=facts.wants_json or wants)
        return mode, ReadBody(members_with_profile, facts, parsed_body.too_heavy), dropped_members

    def _members(self, mode: MemoryMode) -> ProfileMembers:
        assert self.agent is not None  # noqa: S101 - the caller looked
        profile = self.agent.settings
        values: dict[str, Any] = (profile.parameters or AgentParameters()).model_dump(mode="json")
        values["response_format"] = profile.response_format or None
        tools = profile.memory_tools and mode.name in ("full", "read")
        return ProfileMembers(values, profile.locked, tools)


NO_AGENT = CalledAgent()


async def called_agent(
    gateway: GatewayState, principal: Principal, model: str, headers: Headers, mode: MemoryMode
) -> CalledAgent:
    """Return the agent that a request calls.

    Raises UnknownAgent, Forbidden, BadRequest; Unavailable if the profiles cannot be read.
    """
    by_model = named_agent(model)
    by_header = None
    if HEADER in headers and mode.name != "off":
        by_header = _named_in(headers)
    if by_model is None:
        if by_header is None:
            return NO_AGENT
        return await _named_by_header(gateway, principal, by_header)
    agent = await _find(gateway, principal, by_model)
    if agent is None:
        names = [known_agent.name for known_agent in await gateway.agents.list_agents(principal)]
        raise unknown_agent(by_model, names)
    check_call(principal, agent)
    if by_header is not None and own_id(by_header) not in (agent.name, agent.id):
        raise BadRequest(
            f"The request names two agents: `model` the agent {agent.name!r}, X-Memory-Agent "
            f"{by_header[:64]!r}. Name one.",
            code="agent_conflict",
            param="model",
        )
    return CalledAgent(agent, True)


def _named_in(headers: Headers) -> str | None:
    """Return the agent in a header; None for a malformed one, which is refused in its turn."""
    try:
        return agent_of(headers)
    except BadRequest:
        return None


async def _named_by_header(gateway: GatewayState, principal: Principal, name: str) -> CalledAgent:
    try:
        agent = await _find(gateway, principal, name, certain=False)
    except Unavailable:
        # The memory is not there either, and takes no app down.
        agent = None
    # A name without a profile is one of an agent too.
    gateway.agents.check_named(principal, name, agent)
    if agent is None:
        return NO_AGENT
    return CalledAgent(agent)


async def _find(
    gateway: GatewayState, principal: Principal, name: str, *, certain: bool = True
) -> Agent | None:
    """Return a profile. certain: see `AgentProfiles.find`. Raises Unavailable."""
    try:
        return await gateway.agents.find(principal.tenant, name, certain=certain)
    except StoreUnavailable as e:
        raise Unavailable(
            f"The profile of the agent {name[:64]!r} cannot be read now. Try again shortly.",
            headers=[(b"retry-after", b"1")],
        ) from e
