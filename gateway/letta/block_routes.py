"""Blocks: those of an agent, and those that stand by themselves."""

from __future__ import annotations

from gateway.letta.agents import find_agent, find_own, list_states
from gateway.letta.blocks import (
    BLOCK_USED,
    BLOCKS,
    LettaBlock,
    find_label,
    read_block,
    read_change,
)
from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable
from gateway.letta.paging import MAX_LIMIT, USUAL, order_of, page_of
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_state
from gateway.wire.chat import Json
from memory import BlockEdit
from memory.management.shared_blocks import BlockWalk


async def agent_blocks(call: LettaCall, ident: str) -> list[Json]:
    """List the blocks that an agent shows, by label."""
    agent = await find_agent(call, ident)
    return page_of(call, [block.to_json() for block in await BLOCKS.list_of(call, agent)])


async def agent_block(call: LettaCall, ident: str, label: str) -> Json:
    agent = await find_agent(call, ident)
    return find_label(await BLOCKS.list_of(call, agent), label).to_json()


async def change_agent_block(call: LettaCall, ident: str, label: str) -> Json:
    """Change a block of an agent."""
    agent = await find_agent(call, ident)
    block = find_label(await BLOCKS.list_of(call, agent), label)
    change = await _sent_change(call, block)
    return (await BLOCKS.update(call, agent, label, change)).to_json()


async def _sent_change(call: LettaCall, block: LettaBlock) -> BlockEdit:
    """Return the change of a block that a body describes. Raises Unprocessable."""
    request_body = await call.body()
    call.drop(
        name for name in request_body if name not in BLOCK_USED and request_body[name] is not None
    )
    change = read_change(request_body)
    if request_body.get("label") not in (None, block.block.label):
        raise Unprocessable("A block keeps its `label`: make another one.", param="label")
    return change


async def attach_block(call: LettaCall, ident: str, block: str) -> Json:
    """Let an agent show a block."""
    agent = await find_own(call, ident)
    await BLOCKS.attach(call, agent, block)
    return await agent_state(call, agent)


async def detach_block(call: LettaCall, ident: str, block: str) -> Json:
    """Let an agent no longer show a block."""
    agent = await find_own(call, ident)
    await BLOCKS.detach(call, agent, block)
    return await agent_state(call, agent)


async def make_block(call: LettaCall) -> Json:
    """Make a block that no agent shows yet."""
    call.check_manager()
    return (await BLOCKS.create(call, read_block(call, await call.body()))).to_json()


async def blocks(call: LettaCall) -> list[Json]:
    """List blocks, by label or all, in the order in which they were made."""
    call.check_manager()
    is_newest_first = order_of(call, "asc") == "desc"
    limit = call.number("limit", USUAL, MAX_LIMIT)
    label = call.word("label")
    after = call.word("after")
    before = call.word("before")
    # Those next to it.
    if before and not after:
        walk = BlockWalk(before, not is_newest_first)
        return [block.to_json() for block in await BLOCKS.list_all(call, label, walk, limit)][::-1]
    page = await BLOCKS.list_all(call, label, BlockWalk(after, is_newest_first), limit)
    ids = [block.id for block in page]
    end = None
    if before in ids:
        end = ids.index(before)
    return [block.to_json() for block in page[:end]]


async def block(call: LettaCall, ident: str) -> Json:
    call.check_manager()
    return (await BLOCKS.find(call, ident)).to_json()


async def change_block(call: LettaCall, ident: str) -> Json:
    """Change a block, wherever it is shown."""
    call.check_manager()
    block = await BLOCKS.find(call, ident)
    return (await BLOCKS.change(call, ident, await _sent_change(call, block))).to_json()


async def delete_block(call: LettaCall, ident: str) -> Json:
    """Delete a block, wherever it is shown."""
    call.check_manager()
    await BLOCKS.delete(call, ident)
    return {"id": ident, "object": "block", "deleted": True}


async def block_agents(call: LettaCall, ident: str) -> list[Json]:
    """List the agents that show a block."""
    call.check_manager()
    names = await BLOCKS.agents_of(call, ident)
    return await list_states(call, lambda row: row.name in names)


ROUTES = (
    LettaRoute("GET", "agents/*/core-memory/blocks", agent_blocks, "The blocks of an agent"),
    LettaRoute("GET", "agents/*/core-memory/blocks/*", agent_block, "A block of an agent"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/*", change_agent_block, "Change a block"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/attach/*", attach_block, "Attach a block"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/detach/*", detach_block, "Detach a block"),
    LettaRoute("POST", "blocks", make_block, "Make a block"),
    LettaRoute("GET", "blocks", blocks, "Blocks"),
    LettaRoute("GET", "blocks/*", block, "A block"),
    LettaRoute("PATCH", "blocks/*", change_block, "Change a block"),
    LettaRoute("DELETE", "blocks/*", delete_block, "Delete a block"),
    LettaRoute("GET", "blocks/*/agents", block_agents, "The agents that show a block"),
)
