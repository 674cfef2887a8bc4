"""The blocks of agents: shared blocks, of which an agent is a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gateway.errors import RequestConflict, ResourceNotFound
from gateway.letta.call import LettaCall, missing
from gateway.letta.errors import NotSupported, Unprocessable, wrong_type
from gateway.letta.ids import digits_of, letta_id
from gateway.management.context import translate_errors
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import BlockEdit, CoreBlock, ManagementActor, home_of, keyed_hash, management
from memory.errors import BadArguments, BlockFull
from memory.export_format import LIMIT as MOST_CHARACTERS
from memory.management.shared_blocks import (
    BlockFilter,
    BlockName,
    BlockWalk,
    MemberName,
    NewShared,
    OutsideEdit,
    SharedEdit,
    StoredShared,
)

# Of the values of a page.
PAGE_CHARACTERS = 4 << 20
# Members at once.
READ = 500


class LettaBlock(msgspec.Struct, frozen=True):
    """One block. id: as the client knows it."""

    id: str
    block: CoreBlock

    def to_json(self) -> Json:
        """Return the block as the client knows it."""
        block = self.block
        return {
            "id": self.id,
            "label": block.label,
            "value": block.value,
            "description": block.description,
            "limit": block.limit,
            "read_only": block.read_only,
            "metadata": {},
            "tags": [],
            "is_template": False,
            "template_name": None,
            "hidden": None,
        }


class SharedBlocks:
    """Letta's blocks. The first methods are about those that an agent shows.

    An agent that was not made by a Letta client may also show blocks of its profile. They have an
    id that is made of the agent's and their label, and no other agent shows them.
    """

    async def list_of(self, call: LettaCall, agent: Agent) -> list[LettaBlock]:
        """List an agent's blocks by label."""
        work = management.shared_blocks.list_shown(call.memory, actor_of(call, agent))
        blocks = await call.read(work)
        return [_with_id(call, agent, blocks[label]) for label in sorted(blocks)]

    async def update(
        self, call: LettaCall, agent: Agent, label: str, change: BlockEdit
    ) -> LettaBlock:
        """Change a block. Raises ResourceNotFound, Unprocessable, Forbidden."""
        block = find_label(await self.list_of(call, agent), label)
        if block.block.shared:
            return await self.change(call, block.id, change)
        actor = actor_of(call, agent)
        with translate_errors():
            call.memory.policy.screen.check("value", change.value)
            how = management.blocks.patch_block(label, change, actor.defaults)
        now = await call.write(management.blocks.edit_block(call.memory, actor, label, how))
        assert now is not None  # noqa: S101 - a patch never deletes
        return _with_id(call, agent, now)

    async def attach(self, call: LettaCall, agent: Agent, ident: str) -> None:
        """Let an agent show a block, and write in it. Raises ResourceNotFound, RequestConflict."""
        shown_blocks = await self.list_of(call, agent)
        if any(
            shown_block.id == ident for shown_block in shown_blocks if not shown_block.block.shared
        ):
            return
        block = await self.find(call, ident)
        check_room(
            call, [shown_block for shown_block in shown_blocks if shown_block.id != ident], [block]
        )
        await self._put(call, agent, block)

    async def detach(self, call: LettaCall, agent: Agent, ident: str) -> None:
        """Let an agent no longer show a block. Raises ResourceNotFound, NotSupported."""
        shared_flags = [
            shown_block.block.shared
            for shown_block in await self.list_of(call, agent)
            if shown_block.id == ident
        ]
        if shared_flags == [False]:
            raise NotSupported(
                "This block is part of the agent's profile: take it out there, with "
                "PATCH /memory/v1/agents/{name}."
            )
        block_name = name_block(call, ident)
        member = MemberName("agent", agent.name)
        await call.write(management.shared_blocks.remove_member(call.memory, block_name, member))

    async def give(
        self,
        call: LettaCall,
        agent: Agent,
        new_blocks: Sequence[CoreBlock],
        existing_blocks: Sequence[LettaBlock],
    ) -> None:
        """Give a new agent blocks: new ones, and some that are there. Raises RequestConflict."""
        member = MemberName("agent", agent.name)
        created_blocks = [
            NewShared(new_block, members=[(member, not new_block.read_only)])
            for new_block in new_blocks
        ]
        if created_blocks:
            source = replace(call.source(), agent=agent.name)
            await call.write(
                management.shared_blocks.create_blocks(
                    call.memory, call.tenant, created_blocks, source
                )
            )
        for block in existing_blocks:
            await self._put(call, agent, block)

    async def replace(
        self, call: LettaCall, agent: Agent, wanted_blocks: Sequence[LettaBlock]
    ) -> None:
        """Let an agent show these shared blocks and no others. Raises RequestConflict."""
        shown_blocks = await self.list_of(call, agent)
        check_room(call, [item for item in shown_blocks if not item.block.shared], wanted_blocks)
        ids = [item.id for item in wanted_blocks]
        before = [item.id for item in shown_blocks if item.block.shared]
        for ident in before:
            if ident not in ids:
                await self.detach(call, agent, ident)
        for block in wanted_blocks:
            if block.id not in before:
                await self._put(call, agent, block)

    async def find_all(
        self, call: LettaCall, agent: Agent | None, idents: Iterable[str]
    ) -> list[LettaBlock]:
        """Return the shared blocks of these ids. Raises ResourceNotFound.

        agent: whose own blocks may be named too, and are left out.
        """
        if agent is not None:
            shown_blocks = await self.list_of(call, agent)
        else:
            shown_blocks = []
        own_ids = [shown_block.id for shown_block in shown_blocks if not shown_block.block.shared]
        return [
            await self.find(call, ident) for ident in dict.fromkeys(idents) if ident not in own_ids
        ]

    async def create(self, call: LettaCall, new_block: CoreBlock) -> LettaBlock:
        """Make a block that no agent shows yet. Raises RequestConflict."""
        stored_block = await call.write(
            management.shared_blocks.create_block(
                call.memory, call.tenant, NewShared(new_block), call.source()
            )
        )
        return _shared(stored_block)

    async def find(self, call: LettaCall, ident: str) -> LettaBlock:
        """Return a block. Raises ResourceNotFound."""
        block_name = name_block(call, ident)
        return _shared(
            await call.read(management.shared_blocks.find_block(call.memory, block_name))
        )

    async def list_all(
        self, call: LettaCall, label: str, walk: BlockWalk, limit: int
    ) -> list[LettaBlock]:
        """List blocks in the order in which they were made. walk: with an id of the client's."""
        digits = digits_of("block", walk.after)
        if walk.after and digits is None:
            return []
        stored_blocks = await call.read(
            management.shared_blocks.list_by_time(
                call.memory,
                call.tenant,
                BlockFilter(label),
                walk._replace(after=f"block_{digits}" if digits else ""),
                limit,
            )
        )
        return [_shared(stored_block) for stored_block in _cut(stored_blocks)]

    async def change(self, call: LettaCall, ident: str, change: BlockEdit) -> LettaBlock:
        """Change a block. Raises ResourceNotFound, Unprocessable, Forbidden."""
        with translate_errors():
            call.memory.policy.screen.check("value", change.value)
        now = await self._edit(call, ident, management.shared_blocks.change_value(change))
        assert now is not None  # noqa: S101 - this edit never deletes
        return _shared(now)

    async def delete(self, call: LettaCall, ident: str) -> None:
        """Delete a block. Raises ResourceNotFound, Forbidden."""
        await self._edit(call, ident, management.shared_blocks.delete_block)

    async def agents_of(self, call: LettaCall, ident: str) -> set[str]:
        """Return the names of the agents that are members of a block. Raises ResourceNotFound."""
        block_name = name_block(call, ident)
        place = MemberName("agent")
        names = set[str]()
        while True:
            members = await call.read(
                management.shared_blocks.list_members(call.memory, block_name, place, READ)
            )
            names |= {row.member.name for row in members if row.member.kind == "agent"}
            if len(members) < READ or members[-1].member.kind != "agent":
                return names
            place = members[-1].member

    async def _put(self, call: LettaCall, agent: Agent, block: LettaBlock) -> None:
        block_name = name_block(call, block.id)
        member = MemberName("agent", agent.name)
        write = not block.block.read_only
        await call.write(
            management.shared_blocks.put_member(call.memory, block_name, member, write)
        )

    async def _edit(self, call: LettaCall, ident: str, how: SharedEdit) -> StoredShared | None:
        block_name = name_block(call, ident)
        return await call.write(
            management.shared_blocks.edit_block(
                call.memory, block_name, how, call.source(), OutsideEdit()
            )
        )


BLOCKS = SharedBlocks()


def actor_of(call: LettaCall, agent: Agent) -> ManagementActor:
    """Return who edits the one memory of an agent."""
    return ManagementActor(
        call.memory.scope(call.tenant, home_of(agent.name), agent.name),
        call.gateway.agents.policy_of(agent).blocks,
        call.source(),
    )


def name_block(call: LettaCall, ident: str) -> BlockName:
    """Return the name of a shared block by its id. Raises ResourceNotFound."""
    digits = digits_of("block", ident)
    if digits is None:
        raise missing("block", ident)
    return call.tenant, f"block_{digits}"


def _shared(stored_block: StoredShared) -> LettaBlock:
    return LettaBlock(letta_id("block", stored_block.id), stored_block.block)


def _with_id(call: LettaCall, agent: Agent, block: CoreBlock) -> LettaBlock:
    if block.shared:
        return LettaBlock(letta_id("block", block.id), block)
    of = f"letta block\x00{agent.id}\x00{block.label}".encode()
    return LettaBlock(letta_id("block", keyed_hash(call.gateway.secret[:64], of).hex()), block)


def _cut(stored_blocks: Sequence[StoredShared]) -> list[StoredShared]:
    """Return as many blocks as a page takes, one at least."""
    room = PAGE_CHARACTERS
    page = list[StoredShared]()
    for stored_block in stored_blocks:
        room -= len(stored_block.block.value)
        if page and room < 0:
            break
        page.append(stored_block)
    return page


def check_room(
    call: LettaCall, shown_blocks: Iterable[LettaBlock], added_blocks: Iterable[LettaBlock]
) -> None:
    """Raise RequestConflict if an agent cannot show more blocks beside those that it shows.

    One that is attached goes before an own one of its label, but two of them do not fit together.
    """
    blocks_by_label = {letta_block.block.label: letta_block.block for letta_block in shown_blocks}
    new_blocks = [letta_block.block for letta_block in added_blocks]
    labels = {label for label, block in blocks_by_label.items() if block.shared}
    for block in new_blocks:
        if block.label in labels:
            raise RequestConflict(
                f"The agent has a block {block.label!r} already, and shows one of each label. "
                "Detach that one first.",
                code="label_taken",
            )
        labels.add(block.label)
    with translate_errors():
        management.shared_blocks.check_space(call.memory, blocks_by_label, new_blocks)


def find_label(blocks: list[LettaBlock], label: str) -> LettaBlock:
    """Return the block of a label. Raises ResourceNotFound."""
    for block in blocks:
        if block.block.label == label:
            return block
    raise ResourceNotFound(f"There is no memory block {label[:80]!r}.")


BLOCK_USED = frozenset({"label", "value", "description", "limit", "read_only"})
# Characters of a block that says none.
LIMIT = 20_000
DESCRIPTION = 10_000
# Of one list.
MAX_BLOCKS = 256
KINDS: Mapping[str, type] = {"label": str, "value": str, "description": str, "read_only": bool}
NEEDED = ("label", "value")


def read_block(call: LettaCall, request_block: Any, where: str = "") -> CoreBlock:
    """Return a block that a request describes. where: its member. Raises Unprocessable."""
    if not isinstance(request_block, dict):
        raise wrong_type(where, request_block, dict)
    call.drop(
        name for name in request_block if name not in BLOCK_USED and request_block[name] is not None
    )
    within = f"{where}." if where else ""
    for name in NEEDED:
        if request_block.get(name) is None:
            raise wrong_type(f"{within}{name}", None, str)
    change = read_change(request_block, within)
    block = CoreBlock(request_block["label"], "", change.description or "", change.limit or LIMIT)
    change = BlockEdit(change.value, read_only=change.read_only)
    try:
        call.memory.policy.screen.check("value", change.value)
        return management.shared_blocks.new_block(block, change)
    except BlockFull as e:
        raise Unprocessable(str(e), code="block_full", param=where or "value") from e
    except BadArguments as e:
        name = "value" if str(e).startswith("`value`") else "label"
        raise Unprocessable(str(e), param=f"{within}{name}") from e


def read_change(request_block: Mapping[str, Any], within: str = "") -> BlockEdit:
    """Return what a request sets of a block. Raises Unprocessable."""
    for name, kind in KINDS.items():
        value = request_block.get(name)
        if value is not None and not isinstance(value, kind):
            raise wrong_type(f"{within}{name}", value, kind)
    limit = request_block.get("limit")
    about = request_block.get("description")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_CHARACTERS):
        raise Unprocessable(
            f"`{within}limit` must be a number from 1 to {MOST_CHARACTERS}.", param=f"{within}limit"
        )
    if about is not None and len(about) > DESCRIPTION:
        raise Unprocessable(
            f"`{within}description` has {len(about)} characters; at most {DESCRIPTION} are "
            "allowed.",
            param=f"{within}description",
        )
    return BlockEdit(request_block.get("value"), about, limit, request_block.get("read_only"))


def read_blocks(call: LettaCall, request_blocks: Sequence[Any], where: str) -> list[CoreBlock]:
    """Return the blocks of a list. where: its name. Raises Unprocessable, RequestConflict."""
    if len(request_blocks) > MAX_BLOCKS:
        raise Unprocessable(
            f"`{where}` has {len(request_blocks)} blocks; at most {MAX_BLOCKS} are allowed.",
            param=where,
        )
    core_blocks: dict[str, CoreBlock] = {}
    for i, item in enumerate(request_blocks):
        block = read_block(call, item, f"{where}.{i}")
        if block.label in core_blocks:
            raise Unprocessable(
                f"`{where}` has the label {block.label!r} twice; a label names one block.",
                param=where,
            )
        core_blocks[block.label] = block
    return list(core_blocks.values())
