"""Find the targets that serve a model name: exact match, then the longest prefix, then `*`.

Each target carries what is known of its model.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any

from gateway.auth.authenticator import Principal
from gateway.config.agents import PREFIX
from gateway.config.settings import ModelSettings, Price, ProviderSettings, Settings, TargetSettings
from gateway.errors import BadRequest, Forbidden, UnknownModel
from gateway.models.facts import ModelFacts
from gateway.models.thinking import ThinkingModels
from gateway.routing.agents import Agent
from gateway.upstream.base import Upstream
from gateway.upstream.bridged import BridgedUpstream
from gateway.upstream.window_probe import is_asked
from gateway.usage.pricing import price_of
from memory import Cache


@dataclass(frozen=True, slots=True)
class Target:
    """One upstream, with the name by which it knows the model.

    concurrent: limit of concurrent requests, 0 for none. price: None if unknown. window: in tokens,
    None if unknown. stateful: its server keeps responses, as far as the settings say. asks: its
    server is to be asked for the window, see `ContextWindows`. supports_images: results of tools
    may have pictures.
    """

    provider: str
    model: str
    upstream: Upstream
    settings: ProviderSettings
    weight: float = 1.0
    concurrent: int = 0
    price: Price | None = None
    window: int | None = None
    supports_tools: bool = True
    tokenizer: str = "estimate"
    stateful: bool = True
    asks: bool = False
    supports_images: bool = True
    # Its name in headers and errors, without the URL.
    label: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.provider}/{self.model}")

    @property
    def keeps_responses(self) -> bool:
        """Whether its server keeps responses that a request can go on from."""
        server = self.upstream
        return self.stateful and not (
            isinstance(server, BridgedUpstream) and server.bridges_responses
        )

    @property
    def address(self) -> str:
        """Host and port, for the operator's log."""
        return (
            self.settings.base_url.partition("://")[2]
            .partition("/")[0]
            .partition("?")[0]
            .rpartition("@")[2]
        )


@dataclass(frozen=True, slots=True)
class Route:
    """The targets of a model.

    tiers: the model's own targets, then those of each fallback, and `targets` all of them. name:
    the requested model. memory: the mode that its requests have at most.
    """

    tiers: tuple[tuple[Target, ...], ...]
    name: str = ""
    memory: str = "full"
    targets: tuple[Target, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", tuple(t for tier in self.tiers for t in tier))

    @property
    def total_seconds(self) -> float:
        """The longest total timeout of its targets."""
        if len(self.targets) == 1:
            return self.targets[0].settings.timeouts.total
        return max(t.settings.timeouts.total for t in self.targets)

    @property
    def keeps_responses(self) -> bool:
        """Whether every target's server keeps responses, so that none need be kept here."""
        return all(t.keeps_responses for tier in self.tiers for t in tier)


# Bounds the cache: behind `*`, clients choose the names.
ROUTES_BYTES = 1 << 20
ROUTES_EACH = 600

# Names are kept in many places, and sent in headers.
NAME_CHARACTERS = 1024


def _weight(name: str, route: Route) -> int:
    return getsizeof(name) + sum(ROUTES_EACH + getsizeof(t.label) for t in route.targets)


class Router:
    """Resolves model names. upstreams: by provider name. facts: see `ModelFacts`."""

    def __init__(
        self, settings: Settings, upstreams: Mapping[str, Upstream], facts: ModelFacts
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self.facts = facts.of
        self.thinking = ThinkingModels()
        self.routes: Cache[str, Route] = Cache(ROUTES_BYTES, 0, _weight)

    def find(self, name: str) -> tuple[str, ModelSettings] | None:
        """Return the configured entry that serves this name."""
        models = self._settings.models
        if name in models and not name.endswith("*"):
            return name, models[name]
        prefixes = [p for p in models if p.endswith("*") and name.startswith(p[:-1])]
        best_prefix = max(prefixes, key=len, default=None)
        if best_prefix is not None:
            return (best_prefix, models[best_prefix])
        return None

    def route(self, name: str, principal: Principal) -> Route:
        """Return the route of a model.

        Raises UnknownModel, or Forbidden for a model that this key may not call.
        """
        if len(name) > NAME_CHARACTERS:
            raise UnknownModel(
                f"The model's name has {len(name)} characters; at most {NAME_CHARACTERS} are "
                "allowed.",
                param="model",
            )
        if name.startswith(PREFIX):
            raise BadRequest(
                f"{name[:80]!r} is an agent, which answers chat completions, responses and "
                "messages, and no other path. Name a model here.",
                code="agent_not_possible",
                param="model",
            )
        if "*" not in principal.models and not is_model_allowed(principal, name):
            raise _model_forbidden(name, principal)
        if (known_route := self.routes.get(name)) is None:
            self.routes.put(name, known_route := self._build_route(name))
        return known_route

    def route_agent(self, agent: Agent, called_name: str, principal: Principal) -> Route:
        """Return the route of an agent's model, under the name by which the agent was called.

        A key may call the model through an agent that it names. Fallbacks of the agent that it may
        not call are left out. Raises UnknownModel, Forbidden, BadRequest.
        """
        name = agent.settings.model
        settings = agent.settings
        if not name:
            raise BadRequest(
                f"The agent {agent.name!r} has no model of its own: send the name of a model, and "
                f"X-Memory-Agent: {agent.name}.",
                code="agent_without_model",
                param="model",
            )
        if not is_agent_allowed(principal, agent.name, name):
            raise _model_forbidden(name, principal)
        fallbacks = [f for f in settings.fallbacks if is_model_allowed(principal, f)]
        key = "\x00".join([called_name, agent.id, str(agent.version), *fallbacks])
        if (route := self.routes.get(key)) is None:
            built = self._build_route(name, fallbacks)
            route = Route(built.tiers, called_name, built.memory)
            self.routes.put(key, route)
        return route

    def _build_route(self, name: str, extra_fallbacks: Sequence[str] = ()) -> Route:
        """Return the route of a model. extra_fallbacks: fallbacks after its own."""
        model_entry = self.find(name)
        if model_entry is None:
            names = [m for m in self._settings.models if not m.endswith("*")][:20]
            raise UnknownModel(
                f"The model {name!r} is not configured here. Configured: "
                f"{', '.join(names) or 'none'}.",
                param="model",
            )
        tiers = [self.targets_of(name, model_entry[1])]
        for fallback in (*model_entry[1].fallbacks, *extra_fallbacks):
            if fallback_entry := self.find(fallback):
                earlier_labels = {t.label for tier in tiers for t in tier}
                tiers.append(
                    tuple(
                        t
                        for t in self.targets_of(fallback, fallback_entry[1])
                        if t.label not in earlier_labels
                    )
                )
        return Route(tuple(filter(None, tiers)), name, model_entry[1].memory)

    def targets_of(self, name: str, model: ModelSettings) -> tuple[Target, ...]:
        """Return a model's own targets, without those of its fallbacks."""
        out = []
        for configured in model.targets:
            facts = self.facts(self._facts_name(name, configured))
            if model.supports_tools is None:
                tools = facts.get("supports_tools", True)
            else:
                tools = model.supports_tools
            out.append(
                Target(
                    configured.provider,
                    configured.model or name,
                    self._upstreams[configured.provider],
                    self._settings.providers[configured.provider],
                    configured.weight,
                    configured.concurrent,
                    price_of(model, facts),
                    model.context_window or facts.get("context_window"),
                    tools,
                    facts.get("tokenizer", "estimate"),
                    configured.stateful,
                    self._asks(configured.provider, model, facts),
                    model.supports_images,
                )
            )
        return tuple(out)

    def _asks(self, provider: str, model: ModelSettings, facts: Mapping[str, Any]) -> bool:
        """Tell whether a server is to be asked for a model's window."""
        settings = self._settings
        if model.context_window is not None or not settings.routing.ask_windows:
            return False
        return is_asked(settings.providers[provider], facts)

    def _facts_name(self, name: str, target: TargetSettings) -> str:
        """Return the name under which `facts` describe a target.

        An Azure deployment may have any name; if it is not a known model, `name` counts.
        """
        model = target.model or name
        if self._settings.providers[target.provider].kind == "azure" and not self.facts(model):
            return name
        return model

    def default(self) -> Target:
        """Return the target of requests without a model."""
        model = self._settings.models.get("*")
        if model:
            name = model.targets[0].provider
        else:
            name = next(iter(self._settings.providers))
        models = self._settings.models.values()
        keeps = all(t.stateful for m in models for t in m.targets if t.provider == name)
        server = self._upstreams[name]
        settings = self._settings.providers[name]
        return Target(name, "", server, settings, stateful=keeps)

    def names(self, principal: Principal) -> list[str]:
        """Return the configured model names that this key may call."""
        return [
            m
            for m in self._settings.models
            if not m.endswith("*") and is_model_allowed(principal, m)
        ]


def _model_forbidden(name: str, principal: Principal) -> Forbidden:
    return Forbidden(
        f"This key may not call the model {name!r}. It may call: {', '.join(principal.models)}.",
        code="model_not_allowed",
        param="model",
    )


def is_model_allowed(principal: Principal, name: str) -> bool:
    return any(pattern == "*" or fnmatch.fnmatchcase(name, pattern) for pattern in principal.models)


def is_agent_allowed(principal: Principal, agent_name: str, model: str) -> bool:
    """Tell whether a key may call an agent's model through it: by either's name."""
    return is_model_allowed(principal, PREFIX + agent_name) or is_model_allowed(principal, model)
