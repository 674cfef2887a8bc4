"""The blocks of agents: a small port, and its implementation on an agent's own blocks."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gateway.errors import ResourceNotFound
from gateway.letta.call import LettaCall, missing
from gateway.letta.errors import NotSupported
from gateway.letta.ids import digits_of, letta_id
from gateway.management.context import translate_errors
from gateway.routing.agents import Agent
from gateway.wire.chat import Json
from memory import BlockEdit, CoreBlock, ManagementActor, home_of, keyed_hash, management

SHARED = "is not supported yet: an agent has blocks of its own here, which no other agent shows."


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


class BlockStore(Protocol):
    """What the door needs of blocks. The first four are about the blocks that an agent shows."""

    async def list_of(self, call: LettaCall, agent: Agent) -> list[LettaBlock]: ...

    async def update(
        self, call: LettaCall, agent: Agent, label: str, change: BlockEdit
    ) -> LettaBlock: ...

    async def attach(self, call: LettaCall, agent: Agent, ident: str) -> None: ...

    async def detach(self, call: LettaCall, agent: Agent, ident: str) -> None: ...

    async def create(self, call: LettaCall, new: CoreBlock) -> LettaBlock: ...

    async def find(self, call: LettaCall, ident: str) -> LettaBlock: ...

    async def list_all(self, call: LettaCall) -> list[LettaBlock]: ...

    async def change(self, call: LettaCall, ident: str, change: BlockEdit) -> LettaBlock: ...

    async def delete(self, call: LettaCall, ident: str) -> None: ...

    async def agents_of(self, call: LettaCall, ident: str) -> list[str]: ...


class OwnBlocks:
    """The blocks of the one memory that an agent has.

    A block's id is made of its agent and its label, so that it stays. Blocks without an agent, or
    with several, are shared blocks.
    """

    async def list_of(self, call: LettaCall, agent: Agent) -> list[LettaBlock]:
        """List an agent's blocks by label."""
        found = await call.read(management.blocks.list_blocks(call.memory, actor_of(call, agent)))
        return [self._with_id(call, agent, found[label]) for label in sorted(found)]

    async def update(
        self, call: LettaCall, agent: Agent, label: str, change: BlockEdit
    ) -> LettaBlock:
        """Change a block. Raises ResourceNotFound, BadRequest, Forbidden."""
        actor = actor_of(call, agent)
        with translate_errors():
            if change.value is not None:
                call.memory.policy.screen.check("value", change.value)
            how = management.blocks.patch_block(label, change, actor.defaults)
        now = await call.write(management.blocks.edit_block(call.memory, actor, label, how))
        assert now is not None  # noqa: S101 - a patch never deletes
        return self._with_id(call, agent, now)

    async def attach(self, call: LettaCall, agent: Agent, ident: str) -> None:
        """Leave a block where it is. Raises NotSupported for one of another agent."""
        if digits_of("block", ident) is None:
            raise missing("block", ident)
        if ident not in [block.id for block in await self.list_of(call, agent)]:
            raise NotSupported(f"To attach a block {SHARED}")

    async def detach(self, call: LettaCall, agent: Agent, ident: str) -> None:
        """Raise NotSupported: a block of an agent's own has no other place."""
        if ident not in [block.id for block in await self.list_of(call, agent)]:
            raise missing("block", ident)
        raise NotSupported(f"To detach a block {SHARED}")

    async def create(self, call: LettaCall, new: CoreBlock) -> LettaBlock:
        raise NotSupported(f"A block without an agent {SHARED}")

    async def find(self, call: LettaCall, ident: str) -> LettaBlock:
        raise NotSupported(f"To look a block up without its agent {SHARED}")

    async def list_all(self, call: LettaCall) -> list[LettaBlock]:
        raise NotSupported(f"To list blocks without an agent {SHARED}")

    async def change(self, call: LettaCall, ident: str, change: BlockEdit) -> LettaBlock:
        raise NotSupported(f"To change a block without its agent {SHARED}")

    async def delete(self, call: LettaCall, ident: str) -> None:
        raise NotSupported(f"To delete a block without its agent {SHARED}")

    async def agents_of(self, call: LettaCall, ident: str) -> list[str]:
        raise NotSupported(f"To list the agents of a block {SHARED}")

    def _with_id(self, call: LettaCall, agent: Agent, block: CoreBlock) -> LettaBlock:
        of = f"letta block\x00{agent.id}\x00{block.label}".encode()
        digits = keyed_hash(call.gateway.secret[:64], of).hex()
        return LettaBlock(letta_id("block", digits), block)


BLOCKS: BlockStore = OwnBlocks()


def actor_of(call: LettaCall, agent: Agent) -> ManagementActor:
    """Return who edits the one memory of an agent."""
    return ManagementActor(
        call.memory.scope(call.tenant, home_of(agent.name), agent.name),
        call.gateway.agents.policy_of(agent).blocks,
        call.source(),
    )


def find_label(blocks: list[LettaBlock], label: str) -> LettaBlock:
    """Return the block of a label. Raises ResourceNotFound."""
    for block in blocks:
        if block.block.label == label:
            return block
    raise ResourceNotFound(f"There is no memory block {label[:80]!r}.")
