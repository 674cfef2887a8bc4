"""An agent as a Letta client describes it, as one of our profiles, and back.

What Letta has and a profile has not stands in the profile's metadata, under a name of the door's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.errors import kind_of
from gateway.letta.call import LettaCall
from gateway.letta.errors import NotSupported, Unprocessable
from gateway.letta.models import served_model
from gateway.letta.tools import check_tool_names, is_of_memory, names_of_ids
from gateway.routing.agents import Agent
from gateway.wire.chat import Json

DOOR = "mnemogate.letta"  # the member of a profile's metadata that is the door's own
LIMIT = 20_000  # characters of a block that says none
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
BLOCK_USED = frozenset({"label", "value", "description", "limit", "read_only"})
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
    kept = metadata.get(DOOR) if isinstance(metadata, dict) else None
    try:
        return msgspec.convert(kept or {}, DoorMembers)
    except msgspec.ValidationError:  # somebody else wrote it
        return DoorMembers()


def shown_metadata(agent: Agent) -> Json:
    """Return an agent's metadata without the door's own."""
    metadata = agent.settings.metadata
    found = metadata if isinstance(metadata, dict) else {"value": metadata}
    return {name: value for name, value in found.items() if name != DOOR}


class ProfileChange:
    """The members of a request that makes or changes an agent, as changes of a profile.

    before: the profile's members, {} for a new agent.
    """

    def __init__(self, call: LettaCall, sent: Json, before: Json, kept: DoorMembers) -> None:
        self._call, self._kept = call, kept
        self._sent = {name: value for name, value in sent.items() if value is not None}
        self._new = not before
        self.profile = dict(before)

    def apply(self) -> Json:
        """Return the members of the profile. Raises Unprocessable, UnknownModel, Forbidden."""
        refuse_members(self._sent, REFUSED)
        used = USED if self._new else USED - {"initial_message_sequence", "include_base_tools"}
        self._call.drop(name for name in self._sent if name not in used)
        if self._sent.get("block_ids"):
            raise NotSupported("`block_ids` is not supported yet: send `memory_blocks`.")
        self._take_texts()
        self._take_model()
        self._take_parameters()
        self._take_tools()
        self._take_blocks()
        self._kept.autoclear = self._flag("message_buffer_autoclear", self._kept.autoclear)
        if self._kept.autoclear and self._new:
            self._kept.initial = self._member("initial_message_sequence", list, [])
        metadata = self._member("metadata", dict, None)
        known = self.profile.get("metadata") or {}
        shown = known if metadata is None else metadata
        own = msgspec.to_builtins(self._kept)
        self.profile["metadata"] = {**{k: v for k, v in shown.items() if k != DOOR}, DOOR: own}
        return self.profile

    def _take_texts(self) -> None:
        names = {"name": "title", "system": "instruction"}
        for name in ("name", "system", "description", "timezone"):
            if name in self._sent:
                self.profile[names.get(name, name)] = self._member(name, str, "")
        for name in ("tags", "response_format"):
            if name in self._sent:
                self.profile[name] = self._sent[name]
        if "context_window_limit" in self._sent:
            self.profile["context_window"] = self._sent["context_window_limit"]

    def _take_model(self) -> None:
        given = self._member("model", str, "")
        config = self._member("llm_config", dict, {})
        for name in ("handle", "model"):
            given = given or str(config.get(name) or "")
        if given or self._new:
            self.profile["model"] = served_model(self._call, given)
            self._kept.model = given or self.profile["model"]
        if "embedding" in self._sent:
            self._kept.embedding = self._member("embedding", str, "")

    def _take_parameters(self) -> None:
        found = dict(self.profile.get("parameters") or {})
        settings = self._member("model_settings", dict, {})
        found |= {ours: settings[name] for name, ours in SETTINGS.items() if name in settings}
        effort = settings.get("reasoning")
        if isinstance(effort, dict) and isinstance(effort.get("reasoning_effort"), str):
            found["reasoning_effort"] = effort["reasoning_effort"]
        for name, ours in (
            ("max_tokens", "max_output_tokens"),
            ("parallel_tool_calls", "parallel_tool_calls"),
        ):
            if name in self._sent:
                found[ours] = self._sent[name]
        found = {name: value for name, value in found.items() if value is not None}
        if found:
            self.profile["parameters"] = found

    def _take_tools(self) -> None:
        names = [*check_tool_names(self._strings("tools"))]
        names += names_of_ids(self._strings("tool_ids"))
        if "tools" in self._sent or "tool_ids" in self._sent:
            self._kept.tools = list(dict.fromkeys(names))
        rules = self._member("tool_rules", list, None)
        if rules is not None:
            self._kept.rules = check_rules(rules)
        if self._new:
            base = self._flag("include_base_tools", True)
            self.profile["memory_tools"] = base or any(map(is_of_memory, names))

    def _take_blocks(self) -> None:
        listed = self._member("memory_blocks", list, None)
        if listed is not None:
            self.profile["blocks"] = [
                read_block(self._call, block, f"memory_blocks.{i}")
                for i, block in enumerate(listed)
            ]

    def _member(self, name: str, kind: type, default: Any) -> Any:
        value = self._sent.get(name, default)
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


NOUNS: Mapping[type, str] = {str: "a string", dict: "an object", list: "a list", bool: "a boolean"}


def wrong_type(name: str, value: object, kind: type) -> Unprocessable:
    """Return the error for a member of a wrong type."""
    return Unprocessable(f"`{name}` must be {NOUNS[kind]}, not {kind_of(value)}.", param=name)


def refuse_members(sent: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise Unprocessable for a member that asks for what this gateway does not do."""
    for name in names:
        if sent.get(name):
            raise Unprocessable(
                f"`{name}` is not supported here. Leave it out.", param=name, code="not_supported"
            )


def check_rules(rules: list[Any]) -> list[dict[str, Any]]:
    """Return tool rules as they are shown again. Raises Unprocessable."""
    for i, rule in enumerate(rules):
        if not (isinstance(rule, dict) and isinstance(rule.get("tool_name"), str)):
            raise Unprocessable(
                f"`tool_rules.{i}` must be an object with a `tool_name`.", param="tool_rules"
            )
        if rule.get("args") or rule.get("child_arg_nodes"):
            raise Unprocessable(
                f"`tool_rules.{i}` prefills arguments, which is not supported here.",
                param="tool_rules",
                code="not_supported",
            )
    return rules


def read_block(call: LettaCall, block: Any, where: str) -> Json:
    """Return a block of a profile. Raises Unprocessable."""
    if not isinstance(block, dict):
        raise wrong_type(where, block, dict)
    call.drop(name for name in block if name not in BLOCK_USED and block[name] is not None)
    kinds: dict[str, type] = {"label": str, "value": str, "description": str, "read_only": bool}
    for name, kind in kinds.items():
        value = block.get(name)
        if not isinstance(value, kind) and (value is not None or name in ("label", "value")):
            raise wrong_type(f"{where}.{name}", value, kind)
    limit = block.get("limit")
    return {
        "label": block["label"],
        "value": block["value"],
        "description": block.get("description") or "",
        "limit": LIMIT if limit is None else limit,
        "read_only": block.get("read_only") or False,
    }
