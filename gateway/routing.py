"""Which upstream serves a model name: exact, then the longest prefix, then `*`. What is known of the model comes along."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import getsizeof
from typing import Any

from gateway.errors import Forbidden, UnknownModel
from gateway.identity import Principal
from gateway.prices import price_of
from gateway.settings import Model, Price, Provider, Settings
from gateway.settings import Target as TargetSettings
from gateway.upstream.base import Upstream
from memory.cache import Cache


@dataclass(frozen=True, slots=True)
class Target:
    """One upstream under the name it knows the model by.

    concurrent: requests at a time, 0 for any. price: None where it is unknown. window: in tokens, None where it is unknown."""

    provider: str
    model: str
    upstream: Upstream
    settings: Provider
    weight: float = 1.0
    concurrent: int = 0
    price: Price | None = None
    window: int | None = None
    supports_tools: bool = True
    tokenizer: str = "estimate"
    label: str = field(init=False)  # its name in headers and errors, without addresses

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.provider}/{self.model}")

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
    """tiers: the model's targets, then those of each fallback. name: the requested model."""

    tiers: tuple[tuple[Target, ...], ...]
    name: str = ""

    @property
    def targets(self) -> list[Target]:
        return [t for tier in self.tiers for t in tier]


ROUTES_BYTES, ROUTES_EACH = (
    1 << 20,
    600,
)  # of routes kept ready; behind `*`, clients name models as they like
NAME_CHARACTERS = 1024  # names are kept in many places, and told in headers


def _weight(name: str, route: Route) -> int:
    return getsizeof(name) + sum(ROUTES_EACH + getsizeof(t.label) for t in route.targets)


def known_models(path: Path) -> dict[str, dict[str, Any]]:
    """The shipped facts about models: name or prefix to context_window, tokenizer, supports_tools."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


class Router:
    """upstreams by provider name. facts: see `known_models`."""

    def __init__(
        self,
        settings: Settings,
        upstreams: Mapping[str, Upstream],
        facts: Mapping[str, dict[str, Any]],
    ) -> None:
        self._settings, self._upstreams, self._facts = settings, upstreams, facts
        self.routes: Cache[str, Route] = Cache(ROUTES_BYTES, 0, _weight)

    def find(self, name: str) -> tuple[str, Model] | None:
        """The configured entry that serves this name."""
        models = self._settings.models
        if name in models and not name.endswith("*"):
            return name, models[name]
        prefixes = [p for p in models if p.endswith("*") and name.startswith(p[:-1])]
        best = max(prefixes, key=len, default=None)
        return (best, models[best]) if best is not None else None

    def route(self, name: str, principal: Principal) -> Route:
        """Raises UnknownModel, or Forbidden for a model that this key may not call."""
        if len(name) > NAME_CHARACTERS:
            raise UnknownModel(
                f"The model's name has {len(name)} characters; at most {NAME_CHARACTERS} are allowed.",
                param="model",
            )
        if not allowed(principal, name):
            raise Forbidden(
                f"This key may not call the model {name!r}. It may call: {', '.join(principal.models)}.",
                code="model_not_allowed",
                param="model",
            )
        if (known := self.routes.get(name)) is None:
            self.routes.put(name, known := self._made(name))
        return known

    def _made(self, name: str) -> Route:
        found = self.find(name)
        if found is None:
            names = [m for m in self._settings.models if not m.endswith("*")][:20]
            raise UnknownModel(
                f"The model {name!r} is not configured here. Configured: {', '.join(names) or 'none'}.",
                param="model",
            )
        tiers = [self._targets(name, found[1])]
        for fallback in found[1].fallbacks:
            if other := self.find(fallback):
                taken = {t.label for tier in tiers for t in tier}
                tiers.append(
                    tuple(t for t in self._targets(fallback, other[1]) if t.label not in taken)
                )
        return Route(tuple(filter(None, tiers)), name)

    def _targets(self, name: str, model: Model) -> tuple[Target, ...]:
        out = []
        for t in model.targets:
            facts = self.facts(self._known(name, t))
            tools = (
                facts.get("supports_tools", True)
                if model.supports_tools is None
                else model.supports_tools
            )
            out.append(
                Target(
                    t.provider,
                    t.model or name,
                    self._upstreams[t.provider],
                    self._settings.providers[t.provider],
                    t.weight,
                    t.concurrent,
                    price_of(model, facts),
                    model.context_window or facts.get("context_window"),
                    tools,
                    facts.get("tokenizer", "estimate"),
                )
            )
        return tuple(out)

    def _known(self, name: str, target: TargetSettings) -> str:
        """By which name `facts` tell of a target. A deployment at Azure is called as its owner likes: one that says nothing stands for `name`."""
        model = target.model or name
        return (
            name
            if self._settings.providers[target.provider].kind == "azure" and not self.facts(model)
            else model
        )

    def default(self) -> Target:
        """Where requests without a model go."""
        model = self._settings.models.get("*")
        name = model.targets[0].provider if model else next(iter(self._settings.providers))
        return Target(name, "", self._upstreams[name], self._settings.providers[name])

    def facts(self, model: str) -> dict[str, Any]:
        """What is known of an upstream model, by its exact name or the longest prefix, a vendor prefix left out."""
        bare = model.rsplit("/", 1)[-1].lower()
        prefixes = [p for p in self._facts if bare.startswith(p)]
        return self._facts.get(model) or (self._facts[max(prefixes, key=len)] if prefixes else {})

    def names(self, principal: Principal) -> list[str]:
        """The configured model names that this key may call."""
        return [m for m in self._settings.models if not m.endswith("*") and allowed(principal, m)]


def allowed(principal: Principal, name: str) -> bool:
    return any(pattern == "*" or fnmatch.fnmatchcase(name, pattern) for pattern in principal.models)
