"""Blocks: those of an agent, and those that stand by themselves."""

from __future__ import annotations

from gateway.letta.agents import find_agent, find_own
from gateway.letta.blocks import BLOCKS, LettaBlock, find_label
from gateway.letta.call import LettaCall
from gateway.letta.errors import Unprocessable
from gateway.letta.paging import page_of
from gateway.letta.profile import BLOCK_USED, read_block, wrong_type
from gateway.letta.route import LettaRoute
from gateway.letta.state import agent_state
from gateway.wire.chat import Json
from memory import BlockEdit, CoreBlock

SHARED = False  # whether blocks stand by themselves: see `OwnBlocks`
EDITED: dict[str, type] = {"value": str, "description": str, "read_only": bool}


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
    sent = {name: value for name, value in (await call.body()).items() if value is not None}
    call.drop(name for name in sent if name not in BLOCK_USED)
    if sent.get("label", block.block.label) != block.block.label:
        raise Unprocessable("A block keeps its `label`: make another one.", param="label")
    for name, kind in EDITED.items():
        if name in sent and not isinstance(sent[name], kind):
            raise wrong_type(name, sent[name], kind)
    limit = sent.get("limit")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise Unprocessable("`limit` must be a number from 1.", param="limit")
    return BlockEdit(sent.get("value"), sent.get("description"), limit, sent.get("read_only"))


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
    sent = read_block(call, await call.body(), "block")
    new = CoreBlock(
        sent["label"], sent["value"], sent["description"], sent["limit"], sent["read_only"]
    )
    return (await BLOCKS.create(call, new)).to_json()


async def blocks(call: LettaCall) -> list[Json]:
    """List blocks, by label or all."""
    call.check_manager()
    label = call.word("label")
    found = await BLOCKS.list_all(call)
    return page_of(call, [b.to_json() for b in found if not label or b.block.label == label])


async def block(call: LettaCall, ident: str) -> Json:
    call.check_manager()
    return (await BLOCKS.find(call, ident)).to_json()


async def change_block(call: LettaCall, ident: str) -> Json:
    """Change a block, wherever it is shown."""
    call.check_manager()
    found = await BLOCKS.find(call, ident)
    return (await BLOCKS.change(call, ident, await _sent_change(call, found))).to_json()


async def delete_block(call: LettaCall, ident: str) -> Json:
    """Delete a block, wherever it is shown."""
    call.check_manager()
    await BLOCKS.delete(call, ident)
    return {"id": ident, "object": "block", "deleted": True}


async def block_agents(call: LettaCall, ident: str) -> list[Json]:
    """List the agents that show a block."""
    call.check_manager()
    names = await BLOCKS.agents_of(call, ident)
    return [await agent_state(call, await find_agent(call, name)) for name in names]


ROUTES = (
    LettaRoute("GET", "agents/*/core-memory/blocks", agent_blocks, "The blocks of an agent"),
    LettaRoute("GET", "agents/*/core-memory/blocks/*", agent_block, "A block of an agent"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/*", change_agent_block, "Change a block"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/attach/*", attach_block, "Attach a block"),
    LettaRoute("PATCH", "agents/*/core-memory/blocks/detach/*", detach_block, "Detach a block"),
    LettaRoute("POST", "blocks", make_block, "Make a block", listed=SHARED),
    LettaRoute("GET", "blocks", blocks, "Blocks", listed=SHARED),
    LettaRoute("GET", "blocks/*", block, "A block", listed=SHARED),
    LettaRoute("PATCH", "blocks/*", change_block, "Change a block", listed=SHARED),
    LettaRoute("DELETE", "blocks/*", delete_block, "Delete a block", listed=SHARED),
    LettaRoute(
        "GET", "blocks/*/agents", block_agents, "The agents that show a block", listed=SHARED
    ),
)
