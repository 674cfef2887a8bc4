"""Who calls a memory tool outside a conversation, what they may do, and what a call returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.conversation.messages import Json
from memory.core.tool_definitions import WRITES
from memory.scope import Scope
from memory.session.request import Policy
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.general_memory import GeneralBlocks

# The memory that a user has without an agent.
DEFAULT_AGENT = "default"
NO_READING = "Error: Memory cannot be read in this request."
NO_WRITING = "Error: Memory cannot be changed in this request."
OFF = "Error: Memory is off for this request, by its header, its key or the user's policy."


@dataclass(frozen=True, slots=True)
class MemoryCaller:
    """Who calls, and about whose memory.

    mode: one of `MODES`. reader: a digest of who sees the results, by which is known which version
    of a block they saw last. said_by: the user, where the memory is an agent's own. extra_members:
    further members of the explain record.
    """

    scope: Scope
    policy: Policy
    mode: str
    request_id: str
    reader: bytes
    said_by: str | None = None
    zone: str = ""
    extra_members: Json = field(default_factory=dict)

    @property
    def only_reads(self) -> bool:
        """Whether nothing is written for this caller but the explain record."""
        return self.mode == "read"

    @property
    def general_blocks(self) -> GeneralBlocks | None:
        """The blocks outside of the caller's project, None for who is in none."""
        return self.policy.general_blocks(self.scope)

    def block_set(self, scope_id: int | None) -> BlockSet:
        """Return the blocks that the caller sees. scope_id: the row of their memory."""
        defaults = self.policy.blocks_in(self.scope.project)
        return BlockSet(scope_id, defaults, shared=self.scope, general=self.general_blocks)

    @property
    def scope_of_record(self) -> Scope:
        """Whose the explain record is: the user's own, also where the memory is an agent's.

        They have no memory with that agent: what its other users share with it is not theirs.
        """
        if self.said_by is None:
            return self.scope
        return Scope(self.scope.tenant, self.said_by, DEFAULT_AGENT, self.scope.secret)


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call returned. explain: the id of its record, "" where none is written."""

    text: str
    explain: str = ""
    data: Json | None = None

    @property
    def is_error(self) -> bool:
        return self.text.startswith("Error:")


def refusal(caller: MemoryCaller, name: str) -> str:
    """Return why a tool may not be called; empty where it may."""
    if caller.mode == "off":
        return OFF
    if name in WRITES:
        if caller.mode != "read":
            return ""
        return NO_WRITING
    if caller.mode != "write":
        return ""
    return NO_READING
