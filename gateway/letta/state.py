"""An agent as Letta's `AgentState`."""

from __future__ import annotations

from gateway.letta.blocks import BLOCKS
from gateway.letta.call import LettaCall
from gateway.letta.history import newest_ids
from gateway.letta.ids import letta_id
from gateway.letta.models import ENDPOINT, window_of
from gateway.letta.profile import door_members, shown_metadata
from gateway.letta.tool_catalog import tools_of
from gateway.letta.tool_rules import shown_rules
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import iso

AGENT_TYPE = "letta_v1_agent"
# Members of which an agent here has none.
NOTHING: Json = {
    "base_template_id": None,
    "deployment_id": None,
    "entity_id": None,
    "hidden": None,
    "last_run_completion": None,
    "last_run_duration_ms": None,
    "last_stop_reason": None,
    "managed_group": None,
    "max_files_open": None,
    "multi_agent_group": None,
    "per_file_view_window_char_limit": None,
    "project_id": None,
    "template_id": None,
    "enable_sleeptime": False,
    "identities": [],
    "identity_ids": [],
    "secrets": [],
    "sources": [],
    "tool_exec_environment_variables": [],
}


def agent_id(agent: Agent) -> str:
    """Return an agent's id as a Letta client knows it."""
    return letta_id("agent", agent.id)


def shown_name(agent: Agent) -> str:
    """Return the name that a Letta client shows."""
    return agent.settings.title or agent.name


def rules_of(agent: Agent) -> list[Json]:
    """Return an agent's rules on tools as a Letta client is shown them."""
    return shown_rules(door_members(agent).rules, agent.settings.tool_rules)


async def agent_state(call: LettaCall, agent: Agent) -> Json:
    """Return all that a Letta client is told of an agent."""
    profile = agent.settings
    members_of_door = door_members(agent)
    stored_agent = agent.row
    blocks = [block.to_json() for block in await BLOCKS.list_of(call, agent)]
    memory = {"blocks": blocks, "agent_type": AGENT_TYPE, "file_blocks": [], "prompt_template": ""}
    return {
        **NOTHING,
        **_models_of(call, agent),
        "id": agent_id(agent),
        "name": shown_name(agent),
        "agent_type": AGENT_TYPE,
        "system": profile.instruction,
        "description": profile.description,
        "tags": list(profile.tags),
        "metadata": shown_metadata(agent),
        "timezone": profile.timezone,
        "response_format": profile.response_format or None,
        "blocks": blocks,
        "memory": memory,
        "tools": tools_of(
            call, members_of_door.tools, profile.tools, memory_tools=profile.memory_tools
        ),
        "tool_rules": rules_of(agent),
        "message_ids": await newest_ids(call, agent),
        "message_buffer_autoclear": members_of_door.autoclear,
        "created_at": iso(stored_agent.created_at) if stored_agent else None,
        "updated_at": iso(stored_agent.updated_at) if stored_agent else None,
    }


def _models_of(call: LettaCall, agent: Agent) -> Json:
    """Return the members that name an agent's model and its embedder."""
    profile = agent.settings
    members_of_door = door_members(agent)
    handle = members_of_door.model or profile.model
    embedding = members_of_door.embedding or call.gateway.settings.memory.embedder
    window = profile.context_window or window_of(call.gateway.router, profile.model)
    return {
        "model": handle,
        "embedding": members_of_door.embedding or None,
        "llm_config": {
            "model": profile.model,
            "model_endpoint_type": ENDPOINT,
            "context_window": window,
            "handle": handle,
        },
        "embedding_config": {
            "embedding_model": embedding,
            "embedding_endpoint_type": ENDPOINT,
            "embedding_dim": 0,
            "handle": embedding,
        },
    }
