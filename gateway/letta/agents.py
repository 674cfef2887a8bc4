"""Agents: made, listed, changed, deleted, as a Letta client asks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gateway.errors import Forbidden, GatewayError, RequestConflict
from gateway.letta.blocks import BLOCKS, LettaBlock, check_room
from gateway.letta.call import LettaCall, missing
from gateway.letta.history import begin_history
from gateway.letta.ids import digits_of, letta_id, new_agent_name
from gateway.letta.paging import cut_page, order_of
from gateway.letta.profile import DoorMembers, ProfileChange, door_members
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_id, agent_state
from gateway.management.profile_edits import check_maker, check_profile
from gateway.routing.agents import CONFIG, Agent
from gateway.wire.chat import Json
from memory import Conflict, CoreBlock, ListedAgent, home_of, management

# Agents of a page.
USUAL = 50
# Of the name of an agent that was given none.
NAME_DIGITS = 8
# Of a change, while others change the same agent.
TRIES = 5


async def find_agent(call: LettaCall, ident: str) -> Agent:
    """Return the agent of an id, whose memory is its own.

    Raises ResourceNotFound; Forbidden for a key that may not see what others told it.
    """
    call.check_manager()
    return await look_up(call, ident)


async def look_up(call: LettaCall, ident: str) -> Agent:
    """Return the agent of an id. Raises ResourceNotFound."""
    digits = digits_of("agent", ident)
    if digits is None:
        raise missing("agent", ident)
    agent = await call.read(call.gateway.agents.find(call.tenant, f"agent_{digits}"))
    if agent is None or agent.settings.home != "agent":
        raise missing("agent", ident)
    return agent


async def find_own(call: LettaCall, ident: str) -> Agent:
    """Return an agent that the caller may change. Raises Forbidden, ResourceNotFound."""
    check_maker(call)
    agent = await look_up(call, ident)
    if agent.source == CONFIG:
        raise Forbidden(
            f"The agent {agent.name!r} is part of the configuration: change it there.",
            code="agent_in_config",
        )
    return agent


async def make_agent(call: LettaCall) -> Json:
    """Make an agent of home `agent`."""
    check_maker(call)
    request_body = await call.body()
    name = new_agent_name()
    title = f"agent-{name.rpartition('-')[2][:NAME_DIGITS]}"
    profile = ProfileChange(
        call, {"name": title, **_without_nulls(request_body)}, {}, DoorMembers()
    )
    await profile.learn()
    members = {"home": "agent", "inherit_blocks": False, **profile.apply()}
    first_messages = None
    if not request_body.get("message_buffer_autoclear"):
        first_messages = request_body.get("initial_message_sequence")
    begin = begin_history(call, first_messages)
    existing_blocks = await BLOCKS.find_all(call, None, profile.block_ids or ())
    agent = await write_with_blocks(call, (name, members), profile.blocks, existing_blocks)
    await begin(agent)
    return await agent_state(call, agent)


async def write_with_blocks(
    call: LettaCall,
    new_agent: tuple[str, Json],
    blocks: Sequence[CoreBlock],
    existing_blocks: Sequence[LettaBlock] = (),
) -> Agent:
    """Write a new agent, all of it or nothing. new_agent: its name, and its profile's members.

    existing_blocks: blocks that it shows beside those that are made. Raises RequestConflict.
    """
    check_room(call, (), [*(LettaBlock("", block) for block in blocks), *existing_blocks])
    name, members = new_agent
    agent = await write_profile(call, name, check_profile(call, members), 0)
    try:
        await BLOCKS.give(call, agent, blocks, existing_blocks)
    except GatewayError:
        await remove_agent(call, agent)
        raise
    return agent


def _without_nulls(request_body: Json) -> Json:
    return {name: value for name, value in request_body.items() if value is not None}


async def write_profile(call: LettaCall, name: str, profile: str, expect: int | None) -> Agent:
    """Write a profile. expect: the version that was seen, None for any. Raises RequestConflict."""
    max_agents = call.gateway.settings.memory.agents_per_tenant
    stored_agent = await call.write(
        management.agents.edit_agent(
            call.memory, (call.tenant, name), lambda _: profile, call.source(expect), max_agents
        )
    )
    assert stored_agent is not None  # noqa: S101 - a profile was given
    return call.gateway.agents.parse(stored_agent)


async def change_agent(call: LettaCall, ident: str) -> Json:
    """Change members of an agent."""
    request_body = await call.body()
    blocks: list[LettaBlock] | None = None

    async def change(agent: Agent, before: Json) -> Json:
        nonlocal blocks
        profile = ProfileChange(call, request_body, before, door_members(agent))
        await profile.learn()
        members = profile.apply()
        if profile.block_ids is not None:
            blocks = await BLOCKS.find_all(call, agent, profile.block_ids)
        return members

    agent = await edit_profile(call, ident, change)
    if blocks is not None:
        await BLOCKS.replace(call, agent, blocks)
    return await agent_state(call, agent)


Change = Callable[[Agent, Json], Awaitable[Json]]


async def edit_profile(call: LettaCall, ident: str, change: Change) -> Agent:
    """Change an agent's profile, and return it. change: gives its new members."""
    for tries_left in reversed(range(TRIES)):
        agent = await find_own(call, ident)
        stored_agent = agent.row
        assert stored_agent is not None  # noqa: S101 - it is no agent of the configuration
        before = msgspec.json.decode(stored_agent.profile)
        members = await change(agent, before)
        try:
            return await write_profile(
                call, agent.name, check_profile(call, members), stored_agent.version
            )
        except RequestConflict as e:
            if not tries_left or not isinstance(e.__cause__, Conflict):
                raise
    raise AssertionError("the last try raises")


async def agent(call: LettaCall, ident: str) -> Json:
    return await agent_state(call, await find_agent(call, ident))


async def agents(call: LettaCall) -> list[Json]:
    """List agents, newest first."""
    call.check_manager()
    return await list_states(call, lambda row: _is_meant(call, row))


async def list_states(call: LettaCall, is_meant: Callable[[ListedAgent], bool]) -> list[Json]:
    """Return the page of agents that a query asks for, newest first."""
    directory = call.gateway.agents
    all_agents = await call.read(directory.list_of(call.principal, call.tenant))
    agents = [row for row in all_agents if row.glance.home == "agent" and is_meant(row)]
    is_newest_first = order_of(call, "desc") == "desc"
    agents.sort(key=lambda row: (row.created_at, row.id), reverse=is_newest_first)
    ids = [letta_id("agent", row.id) for row in agents]
    page = cut_page(call, agents, ids, USUAL)
    names = [row.name for row in page]
    stored_agents = await call.read(management.agents.read_agents(call.memory, call.tenant, names))
    agents_by_name = {row.name: directory.parse(row) for row in stored_agents}
    page_agents = [
        agent for n in names if (agent := agents_by_name.get(n) or directory.configured.get(n))
    ]
    return [await agent_state(call, agent) for agent in page_agents]


def _is_meant(call: LettaCall, row: ListedAgent) -> bool:
    """Tell whether an agent is one that a query asks for."""
    glance = row.glance
    title = glance.title or row.name
    name = call.word("name")
    text = call.word("query_text")
    tags = call.words("tags")
    match = all if call.flag("match_all_tags") else any
    return (
        (not name or title == name)
        and (not text or text.casefold() in title.casefold())
        and (not tags or match(tag in glance.tags for tag in tags))
    )


async def delete_agent(call: LettaCall, ident: str) -> Json:
    """Delete an agent with its memory; return a receipt."""
    agent = await find_own(call, ident)
    erased_counts = await remove_agent(call, agent)
    return {
        "id": agent_id(agent),
        "object": "agent.deleted",
        "deleted": True,
        "erased": erased_counts,
    }


async def remove_agent(call: LettaCall, agent: Agent) -> dict[str, int]:
    """Delete an agent, its memory, and the blocks that only it had; return how much that was."""
    agent_key = call.tenant, agent.name
    blocks = await call.write(
        management.agents.delete_agent(call.memory, agent_key, call.source(), with_blocks=True)
    )
    erased_counts = await call.write(management.agents.erase_memories(call.memory, agent_key))
    home = home_of(agent.name)
    await call.write(management.users.erase_user(call.memory, call.tenant, home))
    return {**erased_counts, "blocks": erased_counts["blocks"] + blocks}


ROUTES = (
    LettaRoute("POST", "agents", make_agent, "Make an agent with a memory of its own"),
    LettaRoute("GET", "agents", agents, "The agents that have a memory of their own"),
    LettaRoute("GET", "agents/*", agent, "One agent"),
    LettaRoute("PATCH", "agents/*", change_agent, "Change an agent"),
    LettaRoute("DELETE", "agents/*", delete_agent, "Delete an agent with its memory"),
)
