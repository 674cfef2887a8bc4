"""Agents as Letta's agent files (`.af`) have them: written whole, and read as profiles. Pure.

What such an agent remembers is read by `letta`. Its blocks become the blocks of its profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memory.export_format import BlockLine
from memory.formats import letta
from memory.formats.records import BrokenItem, Bundle, member, text_member

NAME = re.compile(r"[^a-z0-9._-]+")
NAME_CHARACTERS = 64
TITLE = 256
INSTRUCTION = 32_000
TAGS = 64
# Of a response.
FORMATS = ("text", "json_object", "json_schema")
# Members of a file of one agent.
OLDER = ("system", "messages", "core_memory")
Json = dict[str, Any]


class Remembered(NamedTuple):
    """What an agent remembers, as the API lists it."""

    blocks: Sequence[Json]
    passages: Sequence[Json]
    messages: Sequence[Json]


class ReadAgent(NamedTuple):
    """One agent of a file.

    name: one that it may have here. bundles: what it remembers. tools: names of those that it has.
    rules: on its tools, in Letta's form. handle: of its model, "" for none.
    """

    name: str
    profile: Json
    bundles: list[Bundle]
    tools: Sequence[str] = ()
    rules: Sequence[Json] = ()
    handle: str = ""


def write(agent: Mapping[str, Any], memory: Remembered, created_at: str) -> Json:
    """Return the file of an agent, as the API shows that. created_at: the time, ISO 8601.

    Ids are numbers within the file. The profile is also kept as it is, in `metadata`.
    """
    blocks = [
        {
            "id": f"block-{i}",
            **{name: memory_block[name] for name in ("label", "value", "description", "limit")},
            "read_only": memory_block["read_only"],
            "metadata": {},
        }
        for i, memory_block in enumerate(memory.blocks)
    ]
    messages = [_message(memory_block, i) for i, memory_block in enumerate(memory.messages)]
    entry = {
        "id": "agent-0",
        "name": agent["title"] or agent["name"],
        "description": agent["description"],
        "agent_type": "letta_v1_agent",
        "system": agent["instruction"],
        "model": agent["model"],
        "timezone": agent["timezone"],
        "tags": agent["tags"],
        "metadata": agent["metadata"],
        "block_ids": [block["id"] for block in blocks],
        "tool_ids": [],
        "messages": messages,
        "in_context_message_ids": [memory_block["id"] for memory_block in messages],
        "passages": [
            {"text": p["content"], "tags": p["tags"], "created_at": p["created_at"]}
            for p in memory.passages
        ],
    }
    lists: Json = {name: [] for name in ("groups", "files", "sources", "tools", "mcp_servers")}
    return {"agents": [entry], "blocks": blocks, **lists, "metadata": {}, "created_at": created_at}


def _message(message: Mapping[str, Any], number: int) -> Json:
    content = message["content"]
    return {
        "id": f"message-{number}",
        "role": message["role"],
        "content": [{"type": "text", "text": content}] if isinstance(content, str) else content,
        "created_at": message["created_at"],
    }


def read(value: Any) -> list[ReadAgent]:
    """Return the agents of a file. Raises BrokenItem if it is no agent file."""
    agents = member(value, "agents")
    if isinstance(agents, list):
        agent_list = agents
    else:
        agent_list = [value]
    if agents is None and all(member(value, name) is None for name in OLDER):
        raise BrokenItem("it has no `agents`")
    return [_read_agent(value, agent, is_alone=len(agent_list) == 1) for agent in agent_list]


def _read_agent(value: Any, agent: Any, *, is_alone: bool) -> ReadAgent:
    shared = {"blocks": member(value, "blocks")}
    if is_alone and agent is not value:
        shared["passages"] = member(value, "passages")
    bundles: list[Bundle] = []
    blocks: list[Json] = []
    for bundle in letta.read({"agents": [agent], **shared}):
        if isinstance(bundle, BrokenItem):
            continue
        lines = [line for line in bundle.lines if not isinstance(line, BlockLine)]
        blocks += [_block(line) for line in bundle.lines if isinstance(line, BlockLine)]
        if lines:
            bundles.append(Bundle(lines))
    title = text_member(agent, "name")[:TITLE]
    profile = _profile(agent, title, blocks)
    stored_rules = member(agent, "tool_rules")
    if isinstance(stored_rules, list):
        rules = [r for r in stored_rules if isinstance(r, dict)]
    else:
        rules = []
    names = _tool_names(value, agent)
    return ReadAgent(agent_name(title), profile, bundles, names, rules, _handle(agent))


def _profile(agent: Any, title: str, blocks: list[Json]) -> Json:
    metadata = member(agent, "metadata")
    tags = member(agent, "tags")
    return {
        "title": title,
        "description": text_member(agent, "description"),
        "model": text_member(agent, "model"),
        "instruction": text_member(agent, "system")[:INSTRUCTION],
        "timezone": text_member(agent, "timezone") or "UTC",
        "home": "agent",
        "inherit_blocks": False,
        "blocks": blocks,
        "tags": [t for t in _strings(tags) if t][:TAGS],
        "metadata": metadata if isinstance(metadata, dict) else {},
        **_settings(agent),
    }


def _settings(agent: Any) -> Json:
    """Return the members of a profile that only some files have."""
    settings: Json = {}
    window = member(agent, "context_window_limit")
    form = member(agent, "response_format")
    if type(window) is int and window > 0:
        settings["context_window"] = window
    if isinstance(form, dict) and form.get("type") in FORMATS:
        settings["response_format"] = form
    if member(agent, "include_base_tools") is False:
        settings["memory_tools"] = False
    return settings


def _handle(agent: Any) -> str:
    """Return the name of an agent's model, in whichever member it stands."""
    config = member(agent, "llm_config")
    names = (member(agent, "model"), member(config, "handle"), member(config, "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _tool_names(value: Any, agent: Any) -> list[str]:
    """Return the names of an agent's tools, which a file lists by their ids."""
    stored_tools = member(value, "tools")
    ids = member(agent, "tool_ids")
    names: Json = {}
    for tool in stored_tools if isinstance(stored_tools, list) else ():
        ident = member(tool, "id")
        name = member(tool, "name")
        if isinstance(ident, str) and isinstance(name, str):
            names[ident] = name
    agent_ids = ids if isinstance(ids, list) else ()
    tool_names = [names[i] for i in agent_ids if isinstance(i, str) and i in names]
    return list(dict.fromkeys(tool_names))


def _block(line: BlockLine) -> Json:
    names = ("label", "value", "description", "limit", "read_only")
    return {name: getattr(line, name) for name in names}


def _strings(values: Any) -> Iterable[str]:
    if isinstance(values, list):
        return [v[:256] for v in values if isinstance(v, str)]
    return []


def agent_name(title: str) -> str:
    """Return a name that an agent of this title may have."""
    name = NAME.sub("-", title.lower()).strip("._-")[:NAME_CHARACTERS]
    if name and not name.startswith(("agent-", "agent_")):
        return name
    return f"imported-{name}"[:64]
