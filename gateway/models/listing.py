"""The answer of `/v1/models`, from the configuration: works without an upstream. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.wire.chat import Json, encode

# the member is required and strict clients refuse null; configured names have no creation time
CREATED = 1_700_000_000


def _card(name: str) -> Json:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "mnemogate"}


class AgentEntry(Protocol):
    """An agent in a list. created_at: Unix time, 0 for one of the configuration."""

    @property
    def name(self) -> str: ...

    @property
    def glance(self) -> Any: ...

    @property
    def created_at(self) -> float: ...


def agent_card(agent: AgentEntry, tenant: str) -> Json:
    """Return an agent as a model, under the name by which requests call it."""
    return {
        "id": f"agent:{agent.name}",
        "object": "model",
        "created": int(agent.created_at) or CREATED,
        "owned_by": tenant,
        "description": agent.glance.description,
    }


def model_list(
    names: Sequence[str], upstream_models: Sequence[Json] = (), agents: Sequence[Json] = ()
) -> bytes:
    """Return the configured models, then those that the upstream lists, as strict clients need
    them; then the agents.
    """
    other_cards = [_whole(m) for m in upstream_models if m["id"] and m["id"] not in names]
    return encode({"object": "list", "data": [*map(_card, names), *other_cards, *agents]})


def _whole(upstream_card: Json) -> Json:
    """Return an upstream's entry, with ours for a member that is missing or of a wrong type."""
    card = _card(upstream_card["id"])
    created_at = upstream_card.get("created")
    owner = upstream_card.get("owned_by")
    if isinstance(created_at, (int, float)) and not isinstance(created_at, bool):
        card["created"] = int(created_at)
    if isinstance(owner, str):
        card["owned_by"] = owner
    return {**upstream_card, **card}


def model_card(name: str) -> bytes:
    return encode(_card(name))
