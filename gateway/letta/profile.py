"""An agent as a Letta client describes it, as one of our profiles, and back.

What Letta has and a profile has not stands in the profile's metadata, under a name of the door's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.letta.blocks import read_blocks
from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable, wrong_type
from gateway.letta.models import served_model
from gateway.letta.tool_catalog import (
    check_tool_names,
    grant_tools,
    is_of_memory,
    learn_tools,
    names_of_ids,
)
from gateway.letta.tool_rules import check_rules, profile_rules
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import CoreBlock

# The member of a profile's metadata that is the door's own.
DOOR = "mnemogate.letta"
REFUSED = (
    "secrets",
    "tool_exec_environment_variables",
    "identity_ids",
    "folder_ids",
    "source_ids",
    "from_template",
)
# Members with an effect; all others are named as dropped.
USED = frozenset(
    """
    name system description model llm_config model_settings tags metadata timezone response_format
    context_window_limit max_tokens parallel_tool_calls memory_blocks block_ids tools tool_ids
    tool_rules include_base_tools initial_message_sequence message_buffer_autoclear
    """.split()  # noqa: SIM905
)
OF_NEW = {"initial_message_sequence", "include_base_tools", "memory_blocks"}
# Of a model's settings, by our parameter.
SETTINGS = {
    "temperature": "temperature",
    "max_output_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}


class DoorMembers(msgspec.Struct, omit_defaults=True):
    """What the door keeps of an agent beside its profile.

    model, embedding: as they were given. tools: names of Letta's that were asked for. rules: tool
    rules as given, which are shown again. autoclear: each request begins a conversation; initial:
    what that begins with.
    """

    model: str = ""
    embedding: str = ""
    tools: list[str] = []
    rules: list[dict[str, Any]] = []
    autoclear: bool = False
    initial: list[dict[str, Any]] = []


def door_members(agent: Agent) -> DoorMembers:
    """Return what the door keeps of an agent."""
    metadata = agent.settings.metadata
    door_metadata = None
    if isinstance(metadata, dict):
        door_metadata = metadata.get(DOOR)
    try:
        return msgspec.convert(door_metadata or {}, DoorMembers)
    except msgspec.ValidationError:
        # Somebody else wrote it.
        return DoorMembers()


def shown_metadata(agent: Agent) -> Json:
    """Return an agent's metadata without the door's own."""
    metadata = agent.settings.metadata
    members = metadata if isinstance(metadata, dict) else {"value": metadata}
    return {name: value for name, value in members.items() if name != DOOR}


class ProfileChange:
    """The members of a request that makes or changes an agent, as changes of a profile.

    before: the profile's members, {} for a new agent. blocks: those that are made with it.
    block_ids: of the shared blocks that it shows, None to leave them.
    """

    def __init__(
        self, call: LettaCall, request_body: Json, before: Json, members_of_door: DoorMembers
    ) -> None:
        self._call = call
        self._door_members = members_of_door
        self._request_body = {
            name: value for name, value in request_body.items() if value is not None
        }
        self._is_new = not before
        self.profile = dict(before)
        self.blocks: list[CoreBlock] = []
        self.block_ids: list[str] | None = None

    async def learn(self) -> None:
        """Learn which of the named tools another worker made. Raises StoreDown."""
        names = self._strings("tools")
        ids = self._strings("tool_ids")
        await learn_tools(self._call, names, ids)

    def apply(self) -> Json:
        """Return the members of the profile. Raises Unprocessable, UnknownModel, Forbidden."""
        refuse_members(self._request_body, REFUSED)
        used_members = USED if self._is_new else USED - OF_NEW
        self._call.drop(name for name in self._request_body if name not in used_members)
        self._take_texts()
        self._take_model()
        self._take_parameters()
        self._take_tools()
        self._take_blocks()
        self._door_members.autoclear = self._flag(
            "message_buffer_autoclear", self._door_members.autoclear
        )
        if self._door_members.autoclear and self._is_new:
            self._door_members.initial = self._member("initial_message_sequence", list, [])
        metadata = self._member("metadata", dict, None)
        old_metadata = self.profile.get("metadata") or {}
        new_metadata = old_metadata if metadata is None else metadata
        own_metadata = msgspec.to_builtins(self._door_members)
        self.profile["metadata"] = {
            **{k: v for k, v in new_metadata.items() if k != DOOR},
            DOOR: own_metadata,
        }
        return self.profile

    def _take_texts(self) -> None:
        names = {"name": "title", "system": "instruction"}
        for name in ("name", "system", "description", "timezone"):
            if name in self._request_body:
                self.profile[names.get(name, name)] = self._member(name, str, "")
        for name in ("tags", "response_format"):
            if name in self._request_body:
                self.profile[name] = self._request_body[name]
        if "context_window_limit" in self._request_body:
            self.profile["context_window"] = self._request_body["context_window_limit"]

    def _take_model(self) -> None:
        handle = self._member("model", str, "")
        config = self._member("llm_config", dict, {})
        for name in ("handle", "model"):
            handle = handle or str(config.get(name) or "")
        if handle or self._is_new:
            self.profile["model"] = served_model(self._call, handle)
            self._door_members.model = handle or self.profile["model"]
        if "embedding" in self._request_body:
            self._door_members.embedding = self._member("embedding", str, "")

    def _take_parameters(self) -> None:
        parameters = dict(self.profile.get("parameters") or {})
        settings = self._member("model_settings", dict, {})
        parameters |= {
            our_name: settings[name] for name, our_name in SETTINGS.items() if name in settings
        }
        effort = settings.get("reasoning")
        if isinstance(effort, dict) and isinstance(effort.get("reasoning_effort"), str):
            parameters["reasoning_effort"] = effort["reasoning_effort"]
        for name, our_name in (
            ("max_tokens", "max_output_tokens"),
            ("parallel_tool_calls", "parallel_tool_calls"),
        ):
            if name in self._request_body:
                parameters[our_name] = self._request_body[name]
        parameters = {name: value for name, value in parameters.items() if value is not None}
        if parameters:
            self.profile["parameters"] = parameters

    def _take_tools(self) -> None:
        names = check_tool_names(self._call, self._strings("tools"))
        names += names_of_ids(self._call, self._strings("tool_ids"))
        if "tools" in self._request_body or "tool_ids" in self._request_body:
            self._door_members.tools = list(dict.fromkeys(names))
            self.profile["tools"] = grant_tools(self._call, names)
        rules = self._member("tool_rules", list, None)
        if rules is not None:
            self.profile["tool_rules"] = profile_rules(rules)
            self._door_members.rules = check_rules(rules)
        if self._is_new:
            base = self._flag("include_base_tools", True)
            self.profile["memory_tools"] = base or any(map(is_of_memory, names))

    def _take_blocks(self) -> None:
        if "block_ids" in self._request_body:
            self.block_ids = self._strings("block_ids")
        else:
            self.block_ids = None
        if self._is_new:
            memory_blocks = self._member("memory_blocks", list, [])
            self.blocks = read_blocks(self._call, memory_blocks, "memory_blocks")

    def _member(self, name: str, kind: type, default: Any) -> Any:
        value = self._request_body.get(name, default)
        if value is not default and not isinstance(value, kind):
            raise wrong_type(name, value, kind)
        return value

    def _flag(self, name: str, default: bool) -> bool:
        return bool(self._member(name, bool, default))

    def _strings(self, name: str) -> list[str]:
        values: list[Any] = self._member(name, list, [])
        for value in values:
            if not isinstance(value, str):
                raise wrong_type(name, value, str)
        return values


def refuse_members(request_body: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise Unprocessable for a member that asks for what this gateway does not do."""
    for name in names:
        if request_body.get(name):
            raise Unprocessable(
                f"`{name}` is not supported here. Leave it out.", param=name, code="not_supported"
            )
