"""The agents of a gateway: who is meant by a name, who may call them, how their memory behaves.

The profiles of the configuration are there for every tenant; one of a tenant goes before the
configuration's of the same name. `agent:` names are resolved here, before any target.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gateway.auth.authenticator import Principal
from gateway.config.agents import ID, NAME, PREFIX, AgentSettings
from gateway.config.memory_settings import ReflectSettings
from gateway.config.settings import Settings
from gateway.errors import Forbidden, UnknownAgent
from memory import (
    AgentGlance,
    Cache,
    CoreBlock,
    ListedAgent,
    Memory,
    Policy,
    ReflectionPlan,
    ReflectionSchedule,
    StoredAgent,
    StoreUnavailable,
    home_of,
    keyed_hash,
    management,
)

log = logging.getLogger("mnemogate")
LETTA_ID = re.compile(r"agent-([0-9a-f]{8})-" + r"([0-9a-f]{4})-" * 3 + r"([0-9a-f]{12})")
# Where a profile comes from.
CONFIG, TENANT = "config", "tenant"
# The memory that a user has without an agent.
DEFAULT = "default"
PARSED_BYTES = 4 << 20
PARSED_EACH = 4000
# Agents that an error lists.
MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class Agent:
    """A profile as requests use it. row: its row, None for one of the configuration."""

    id: str
    name: str
    settings: AgentSettings
    row: StoredAgent | None = None

    @property
    def source(self) -> str:
        if self.row is None:
            return CONFIG
        return TENANT

    @property
    def version(self) -> int:
        if self.row is not None:
            return self.row.version
        return 0

    def owner(self, user: str | None) -> str | None:
        """Return whose memory it has when a user talks to it."""
        if self.settings.home == "agent":
            return home_of(self.name)
        return user


def own_id(name: str) -> str:
    """Return the id that a name spells as a Letta client does; any other name as it is."""
    match = LETTA_ID.fullmatch(name)
    if match:
        return f"agent_{''.join(match.groups())}"
    return name


def settings_of(profile: str | bytes) -> AgentSettings:
    """Return what a stored profile says. Raises pydantic's ValidationError."""
    return AgentSettings.model_validate_json(profile)


class AgentDirectory:
    """Finds agents by name or id. secret: the server's, for the ids of configured agents."""

    def __init__(self, settings: Settings, memory: Memory, secret: bytes) -> None:
        self._memory = memory
        self._deadline = settings.memory.read_deadline_ms / 1000
        self._configured = {
            name: Agent(
                f"agent_{keyed_hash(secret[:64], b'agent', name.encode()).hex()[:32]}",
                name,
                agent_settings,
            )
            for name, agent_settings in settings.agents.items()
        }
        self._by_id = {agent.id: agent for agent in self._configured.values()}
        self._parsed_agents: Cache[tuple[str, int], Agent] = Cache(
            PARSED_BYTES,
            PARSED_EACH,
            lambda _, agent: len(agent.row.profile if agent.row else ""),
        )
        self._policies: Cache[tuple[str, int], tuple[Policy, Policy]] = Cache(
            PARSED_BYTES,
            PARSED_EACH,
            lambda _, policies: sum(len(b.value) for b in policies[1].blocks.values()),
        )

    @property
    def configured(self) -> Mapping[str, Agent]:
        """The agents of the configuration, by name."""
        return self._configured

    def find_configured(self, name: str) -> Agent | None:
        """Return the configured agent of a name or an id."""
        return self._by_id.get(name) or self._configured.get(name)

    async def find(self, tenant: str, name: str, *, certain: bool = True) -> Agent | None:
        """Return the agent of a name or an id, None where there is no profile.

        certain: see `AgentProfiles.find`. Raises StoreUnavailable if a tenant's own profiles cannot
        be read.
        """
        if not NAME.fullmatch(name) and not ID.fullmatch(name):
            return None
        profiles = self._memory.agents
        name = own_id(name)
        configured = self.find_configured(name)
        try:
            if not profiles.loaded:
                await self._memory.wait_until_ready()
            row = await profiles.find(tenant, name, self._deadline, certain=certain)
        except StoreUnavailable:
            if configured is None:
                raise
            row = None
        if row is not None:
            return self.parse(row)
        return configured

    async def list_agents(self, principal: Principal) -> list[ListedAgent]:
        """Return the agents that a key may call, in the order of their names.

        Those of the configuration alone if the tenant's own cannot be read in time.
        """
        if not self._memory.agents.is_unused:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(self._deadline):
                    return await self.list_of(principal, principal.tenant)
        return self._callable(principal, ())

    async def list_of(self, principal: Principal, tenant: str) -> list[ListedAgent]:
        """Return the agents of a tenant that a key may call. Raises StoreUnavailable."""
        rows = await management.agents.list_agents(self._memory, tenant)
        return self._callable(principal, rows)

    def _callable(self, principal: Principal, rows: Iterable[ListedAgent]) -> list[ListedAgent]:
        agents_by_name = {name: listed_agent(agent) for name, agent in self._configured.items()}
        agents_by_name |= {row.name: row for row in rows}
        names = [n for n, row in agents_by_name.items() if may_call(principal, n, row.glance.home)]
        return [agents_by_name[name] for name in sorted(names)]

    def parse(self, row: StoredAgent) -> Agent:
        """Return the agent of a row."""
        key = row.id, row.version
        if (agent := self._parsed_agents.get(key)) is None:
            agent = Agent(row.id, row.name, settings_of(row.profile), row)
            self._parsed_agents.put(key, agent)
        return agent

    async def find_reflection_plan(self, tenant: str, agent: str) -> ReflectionPlan:
        """Return how the memory of an agent is tidied. Raises StoreUnavailable."""
        profile = None
        if agent != "default":
            profile = await self.find(tenant, agent, certain=False)
        if profile is None:
            policy = self._memory.policy
        else:
            policy = self.policy_of(profile)
        return policy.reflect.plan

    async def has_clock(self) -> bool:
        """Tell whether a memory is tidied by the clock. Raises StoreUnavailable."""
        if self._memory.policy.reflect.plan.cron:
            return True
        agents = self._configured.values()
        if any(a.settings.reflect is not None and a.settings.reflect.cron for a in agents):
            return True
        if self._memory.agents.is_unused:
            return False
        return await management.agents.any_with_clock(self._memory)

    @staticmethod
    def check_named(principal: Principal, name: str, agent: Agent | None) -> None:
        """Raise Forbidden for an agent that a key may not name. agent: its profile, if any."""
        known_name = name if agent is None else agent.name
        if name != DEFAULT and not may_call_name(principal, known_name):
            raise forbidden_agent(principal, name)
        if agent is not None:
            check_call(principal, agent)

    def policy_of(self, agent: Agent) -> Policy:
        """Return how the memory behaves for an agent: the gateway's own policy, and its profile.

        The same object while neither changes, by which the memory knows what it keeps.
        """
        base = self._memory.policy
        key = (agent.id, agent.version)
        base_and_policy = self._policies.get(key)
        if base_and_policy is None or base_and_policy[0] is not base:
            base_and_policy = base, _merge_policy(base, agent.settings)
            self._policies.put(key, base_and_policy)
        return base_and_policy[1]


def _merge_policy(base: Policy, profile: AgentSettings) -> Policy:
    blocks = [
        CoreBlock(b.label, b.value, b.description, b.limit, b.read_only) for b in profile.blocks
    ]
    return base.of_agent(
        blocks,
        profile.instruction,
        _schedule_of(base.reflect, profile),
        inherits=profile.inherit_blocks,
    )


def _schedule_of(base: ReflectionSchedule, profile: AgentSettings) -> ReflectionSchedule:
    """Return when and how the memory of an agent is tidied, by the clock of its own zone."""
    if profile.reflect is not None:
        return schedule_of(profile.reflect, profile.timezone)
    return replace(base, plan=replace(base.plan, zone=profile.timezone))


def schedule_of(reflect: ReflectSettings, zone: str) -> ReflectionSchedule:
    """Return when and how a memory is tidied. zone: in which a clock is read."""
    plan = ReflectionPlan(
        reflect.cron, zone, reflect.model, reflect.prompt, reflect.dry_run, reflect.label
    )
    return ReflectionSchedule(reflect.every_turns, reflect.idle_seconds, plan)


def listed_agent(agent: Agent) -> ListedAgent:
    """Return an agent as lists have it."""
    profile = agent.settings
    glance = AgentGlance(
        profile.title, profile.description, profile.model, profile.home, list(profile.tags)
    )
    created_at = 0.0
    if agent.row is not None:
        created_at = agent.row.created_at
    return ListedAgent(agent.id, agent.name, glance, created_at)


def named_agent(model: str) -> str | None:
    """Return the agent that a model's name calls, None for a model."""
    if model.startswith(PREFIX):
        return model[len(PREFIX) :]
    return None


def may_call_name(principal: Principal, name: str) -> bool:
    """Tell whether a key's patterns allow an agent's name."""
    return any(p == "*" or fnmatch.fnmatchcase(name, p) for p in principal.agents)


def may_call(principal: Principal, name: str, home: str) -> bool:
    """Tell whether a key may call an agent.

    For a key that is not trusted, `*` means agents of home `user`: who calls one of home `agent`
    may learn what others told it, so it must be named.
    """
    if not may_call_name(principal, name):
        return False
    if principal.trusted or principal.admin or home == "user":
        return True
    return any(p.strip("*") and fnmatch.fnmatchcase(name, p) for p in principal.agents)


def check_call(principal: Principal, agent: Agent) -> None:
    """Raise Forbidden for an agent that a key may not call."""
    if not may_call(principal, agent.name, agent.settings.home):
        raise forbidden_agent(principal, agent.name)


def forbidden_agent(principal: Principal, name: str) -> Forbidden:
    allowed_names = ", ".join(principal.agents) or "none"
    return Forbidden(
        f"This key may not call the agent {name[:64]!r}. It may call: {allowed_names}.",
        code="agent_not_allowed",
        param="model",
    )


def unknown_agent(name: str, names: Iterable[str]) -> UnknownAgent:
    """Return the error for a name without a profile. names: those that this key may call."""
    agent_names = ", ".join(list(names)[:MAX_NAMED]) or "none"
    return UnknownAgent(
        f"There is no agent {name[:64]!r}. This key may call: {agent_names}.", param="model"
    )
