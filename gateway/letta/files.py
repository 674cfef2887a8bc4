"""Agents as `.af` files: written, and made of them."""

from __future__ import annotations

from gateway.http.json_thread import run_heavy
from gateway.letta.agents import find_agent
from gateway.letta.blocks import BLOCKS
from gateway.letta.call import LettaCall
from gateway.letta.history import CONVERSATION, scope_of
from gateway.letta.items import iso_now
from gateway.letta.profile import door_members, shown_metadata
from gateway.letta.route import LettaRoute
from gateway.letta.state import rules_of, shown_name
from gateway.letta.tool_catalog import shown_tool
from gateway.routing.agents import Agent
from gateway.wire.chat import Json, encode
from memory import iso, management
from memory.formats import agent_file
from memory.formats.agent_file import Remembered

PAGE = 500
# Messages or passages of a file.
MAX_ROWS = 20_000
FILE_BYTES = 32 << 20
REFUSED = ("secrets", "env_vars_json")
USED = ("file", "append_copy_suffix", "model", "name", "override_name", "strip_messages")
SPOKEN = ("user", "assistant")
COPY = "_copy"


async def export_file(call: LettaCall, ident: str) -> bytes:
    """Return an agent as an `.af` file."""
    agent = await find_agent(call, ident)
    profile = agent.settings
    members_of_door = door_members(agent)
    blocks = [block.to_json() for block in await BLOCKS.list_of(call, agent)]
    memory_of_agent = Remembered(blocks, await _passages(call, agent), await _messages(call, agent))
    profile_members = {
        "title": shown_name(agent),
        "name": agent.name,
        "description": profile.description,
        "instruction": profile.instruction,
        "model": members_of_door.model or profile.model,
        "timezone": profile.timezone,
        "tags": list(profile.tags),
        "metadata": shown_metadata(agent),
    }
    file = agent_file.write(profile_members, memory_of_agent, iso_now())
    tools = [
        {**shown_tool(call, name), "id": f"tool-{i}"}
        for i, name in enumerate(members_of_door.tools)
    ]
    (entry,) = file["agents"]
    entry |= {
        "tool_ids": [tool["id"] for tool in tools],
        "tool_rules": rules_of(agent),
        "embedding": members_of_door.embedding or None,
        "response_format": profile.response_format or None,
        "context_window_limit": profile.context_window or None,
        "message_buffer_autoclear": members_of_door.autoclear,
        "include_base_tools": profile.memory_tools,
    }
    return await run_heavy(encode, {**file, "tools": tools})


async def _passages(call: LettaCall, agent: Agent) -> list[Json]:
    """Return an agent's passages, oldest first."""
    out: list[Json] = []
    after = 0
    scope = scope_of(call, agent)
    while len(out) < MAX_ROWS:
        rows = await call.read(management.passages.list_oldest(call.memory, scope, after, PAGE))
        out += [
            {"content": r["content"], "tags": r["tags"], "created_at": iso(r["created_at"])}
            for r in rows
        ]
        if len(rows) < PAGE:
            break
        after = rows[-1]["key"]
    return out


async def _messages(call: LettaCall, agent: Agent) -> list[Json]:
    """Return what was said with an agent, oldest first."""
    out: list[Json] = []
    after = None
    conversation = (scope_of(call, agent), CONVERSATION)
    screen = call.memory.policy.screen
    while len(out) < MAX_ROWS:
        turns = await call.read(
            management.exchanges.list_exchanges(
                call.memory, conversation, after, PAGE, newest=False
            )
        )
        for row in (row for turn in turns for row in turn.messages):
            message = management.conversations.read_message(row, screen)
            if message.get("role") in SPOKEN:
                message_item = {"role": message["role"], "content": message.get("content") or ""}
                out.append({**message_item, "created_at": iso(row["created_at"])})
        if len(turns) < PAGE:
            break
        after = turns[-1].key
    return out


ROUTES = (LettaRoute("GET", "agents/*/export", export_file, "An agent as an .af file"),)
