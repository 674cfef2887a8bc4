"""Agents made of an `.af` file, each with one memory of its own: what the file says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gateway.errors import BadRequest, GatewayError, RequestConflict, ResourceNotFound
from gateway.http.json_thread import run_heavy
from gateway.limits.running_imports import RunningImports
from gateway.management import agents
from gateway.management.agent_export import open_own_memory
from gateway.management.context import ManagementRequest, UserContext, translate_errors
from gateway.management.profile_edits import may_grant_tool
from gateway.wire.chat import Json, decode
from memory import (
    MEMORY_TOOL_NAMES,
    EditSource,
    ImportLimits,
    ImportManifest,
    InvalidRule,
    convert_letta_rules,
    export_format,
    management,
    parse_rules,
)

if TYPE_CHECKING:
    from memory.formats.agent_file import ReadAgent

# Tools of files that the memory's own stand for.
LETTA_TOOLS = MEMORY_TOOL_NAMES | {"send_message", "memory"}
# Of one conversation; the others are imported without it.
REFUSED = (400, 413)


async def read_file(text: bytes) -> list[ReadAgent]:
    """Return the agents of a file. Raises BadRequest."""
    from memory.formats import agent_file
    from memory.formats.records import BrokenItem

    try:
        return await run_heavy(lambda: agent_file.read(decode(text)))
    except (BrokenItem, ValueError, RecursionError, msgspec.MsgspecError) as e:
        raise BadRequest(f"This is no agent file: {e}", param="file") from e


async def make_agents(
    caller: ManagementRequest,
    importing: RunningImports,
    file_agents: Sequence[ReadAgent],
    source: EditSource,
) -> list[str]:
    """Make agents with what they remember; return which parts of that were refused.

    Raises RequestConflict for a name that is taken, before anything is made; BadRequest, Forbidden.
    """
    for agent in file_agents:
        await _check_free(caller, agent.name)
    refusals: list[str] = []
    for agent in file_agents:
        refusals += await _make_profile(caller, agent, source)
        with importing.of(caller.tenant):
            refusals += await _import_memory(caller, agent)
    return refusals


async def _check_free(caller: ManagementRequest, name: str) -> None:
    try:
        await agents.find_agent(caller, name)
    except ResourceNotFound:
        return
    raise RequestConflict(f"There is an agent {name!r} already: choose another name.", param="name")


async def _make_profile(
    caller: ManagementRequest, agent: ReadAgent, source: EditSource
) -> list[str]:
    """Make the profile with the first of its possible models that is served here.

    Returns what of it was left out.
    """
    model = agent.profile["model"] or agent.handle
    names = list(dict.fromkeys([model, model.partition("/")[2], ""]))
    tools, tool_lines = _grantable_tools(caller, agent)
    rules, rule_lines = _read_rules(agent)
    profile = {**agent.profile, "tools": tools, "tool_rules": rules}
    for name in names:
        try:
            await agents.put_profile(caller, agent.name, {**profile, "model": name}, source)
            break
        except GatewayError as e:
            if e.param != "model" or name == names[-1]:
                raise
    return [*tool_lines, *rule_lines]


def _grantable_tools(caller: ManagementRequest, agent: ReadAgent) -> tuple[list[str], list[str]]:
    """Return those tools of an agent that the caller may grant, and a line on the others."""
    known_tools = caller.gateway.toolbox.catalog(caller.tenant).tools
    tools = [name for name in agent.tools if name in known_tools and may_grant_tool(caller, name)]
    missing_tools = [name for name in agent.tools if name not in tools and name not in LETTA_TOOLS]
    if not missing_tools:
        return tools, []
    return tools, [
        f"These tools are not here, or not yours to grant: {', '.join(missing_tools)[:400]}."
    ]


def _read_rules(agent: ReadAgent) -> tuple[list[Json], list[str]]:
    """Return an agent's rules on tools as a profile has them, or a line on why there are none."""
    try:
        rules = convert_letta_rules(agent.rules)
        parse_rules(rules)
    except (InvalidRule, KeyError, TypeError, AttributeError) as e:
        return [], [f"The rules on tools cannot be used: {e}."]
    return rules, []


async def _import_memory(caller: ManagementRequest, agent: ReadAgent) -> list[str]:
    """Import what an agent remembers: as one, else each conversation by itself."""
    parts = await run_heavy(
        lambda: [b"".join(map(export_format.encode_line, b.lines)) for b in agent.bundles]
    )
    if not parts:
        return []
    agent_context = await open_own_memory(caller, agent.name)
    try:
        await _import_lines(agent_context, b"".join(parts))
        return []
    except GatewayError as e:
        if e.status not in REFUSED:
            raise
    refusals = []
    for part in parts:
        try:
            await _import_lines(agent_context, part)
        except GatewayError as e:
            if e.status not in REFUSED:
                raise
            refusals.append(e.message)
    return refusals


async def _import_lines(agent_context: UserContext, body: bytes) -> None:
    actor = agent_context.hand("import")
    screen = agent_context.memory.policy.screen
    limits = ImportLimits(
        actor.defaults, agent_context.scope.agent, agent_context.caller.rows, screen
    )
    manifest = ImportManifest(body, limits)
    with translate_errors():
        await manifest.examine()
    await agent_context.write(management.users.import_user(agent_context.memory, actor, manifest))
