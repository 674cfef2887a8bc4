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
from gateway.wire.chat import decode
from memory import EditSource, ImportLimits, ImportManifest, export_format, management

if TYPE_CHECKING:
    from memory.formats.agent_file import ReadAgent

REFUSED = (400, 413)  # of one conversation; the others are imported without it


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
    read: Sequence[ReadAgent],
    source: EditSource,
) -> list[str]:
    """Make agents with what they remember; return which parts of that were refused.

    Raises RequestConflict for a name that is taken, before anything is made; BadRequest, Forbidden.
    """
    for agent in read:
        await _check_free(caller, agent.name)
    refused: list[str] = []
    for agent in read:
        await _make_profile(caller, agent, source)
        with importing.of(caller.tenant):
            refused += await _import_memory(caller, agent)
    return refused


async def _check_free(caller: ManagementRequest, name: str) -> None:
    try:
        await agents.find_agent(caller, name)
    except ResourceNotFound:
        return
    raise RequestConflict(f"There is an agent {name!r} already: choose another name.", param="name")


async def _make_profile(caller: ManagementRequest, agent: ReadAgent, source: EditSource) -> None:
    """Make the profile with the first of its possible models that is served here."""
    model = agent.profile["model"]
    names = list(dict.fromkeys([model, model.partition("/")[2], ""]))
    for name in names:
        try:
            await agents.put_profile(caller, agent.name, {**agent.profile, "model": name}, source)
            return
        except GatewayError as e:
            if e.param != "model" or name == names[-1]:
                raise


async def _import_memory(caller: ManagementRequest, agent: ReadAgent) -> list[str]:
    """Import what an agent remembers: as one, else each conversation by itself."""
    parts = await run_heavy(
        lambda: [b"".join(map(export_format.encode_line, b.lines)) for b in agent.bundles]
    )
    if not parts:
        return []
    own = await open_own_memory(caller, agent.name)
    try:
        await _import_lines(own, b"".join(parts))
        return []
    except GatewayError as e:
        if e.status not in REFUSED:
            raise
    refused = []
    for part in parts:
        try:
            await _import_lines(own, part)
        except GatewayError as e:
            if e.status not in REFUSED:
                raise
            refused.append(e.message)
    return refused


async def _import_lines(own: UserContext, body: bytes) -> None:
    actor, screen = own.hand("import"), own.memory.policy.screen
    limits = ImportLimits(actor.defaults, own.scope.agent, own.caller.rows, screen)
    manifest = ImportManifest(body, limits)
    with translate_errors():
        await manifest.examine()
    await own.write(management.users.import_user(own.memory, actor, manifest))
