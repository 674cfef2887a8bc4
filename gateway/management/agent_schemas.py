"""The objects of agents in the management API."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]


class AgentErased(msgspec.Struct):
    """A receipt of a deleted agent: rows of its memories removed by kind, none if they are kept."""

    agent: str
    id: str
    erased: dict[str, int]
    object: str = "agent.deleted"
    deleted: bool = True


class AgentVersion(msgspec.Struct):
    """before, after: whole profiles, null where there was none."""

    version: int
    before: Json | None
    after: Json | None
    actor: str
    request_id: str | None
    created_at: str


class AgentMemory(msgspec.Struct):
    """What a user has with one agent. project: in which, left out outside of projects."""

    agent: str
    blocks: int
    passages: int
    conversations: int
    active_at: str
    project: str | msgspec.UnsetType = msgspec.UNSET
    object: str = "agent.memory"
