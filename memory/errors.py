"""What can go wrong in the memory, and whom it is addressed to.

MemoryFault: to the caller (the gateway answers without memory, or refuses).
├── StoreUnavailable   the database does not respond, or not in time
│   ├── NotUpgraded    its tables are another version's
│   ├── RowRefused     it refuses a row as it is
│   ├── AttemptRunning another attempt at the request came first
│   └── TakenOver      another worker goes on with the turn
├── Conflict           a stale write: someone else was faster
│   ├── AmbiguousName  several things have the name: name the owner
│   ├── TooManyAgents  the tenant has as many agents as one may have
│   ├── TooManyFiles   the user has as many files as one may have
│   ├── FilesFull      the user's files have as many bytes as they may have
│   ├── FileTooLarge   the file has more bytes than one may have
│   ├── MemoryChanged  a proposal's blocks or passages are not as it saw them
│   ├── SkillExists    another skill of the scope has this name
│   └── TooManySharers the shared block has as many members as one may have
├── ErasedMeanwhile    the owner was erased after this turn began: its writes are void
├── NotFound           no such thing in this scope
├── Postponed          a job lacks a credential: it waits for its tenant's next request
├── TooLong            a prompt of ours exceeds its model's window
└── Unusable           a model's answer to a background call cannot be used
ToolError: to the model, as a tool result that says what to do.
├── UnknownBlock · BlockFull · BlockReadOnly · BadFileName
├── TooManyBlocks · BlockSpaceFull
├── BadSkill           a skill's name, text, description or status
└── BadArguments
"""

from __future__ import annotations

from collections.abc import Sequence


class MemoryFault(Exception):
    """The memory could not do its part."""


class StoreUnavailable(MemoryFault):
    """The store did not answer in time or at all."""


class NotUpgraded(StoreUnavailable):
    """The database has the tables of another version; waiting changes nothing."""


class RowRefused(StoreUnavailable):
    """The database refused a row as it is; to write it again changes nothing."""


class AttemptRunning(StoreUnavailable):
    """Another attempt at this request, which is the same one by its key, came first."""


class TakenOver(StoreUnavailable):
    """Another worker goes on with this turn, since this one was silent for too long."""


class Conflict(MemoryFault):
    """The object changed since it was read."""


class AmbiguousName(Conflict):
    """Several things have this name; the caller has to name the owner."""


class TooManyAgents(Conflict):
    """The tenant has as many agents as one may have."""


class TooManyFiles(Conflict):
    """The user has as many files as one may have."""


class FilesFull(Conflict):
    """The file would exceed the bytes that a user's files have together."""


class FileTooLarge(Conflict):
    """The file has more bytes than one may have."""


class MemoryChanged(Conflict):
    """A proposal cannot be applied or undone: these labels and passages changed since."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"these changed since the proposal was made: {', '.join(names[:20])}")
        self.names = list(names)


class SkillExists(Conflict):
    """Another skill of this scope has the name."""


class TooManySharers(Conflict):
    """The shared block has as many members as one may have."""


class ErasedMeanwhile(MemoryFault):
    """The owner of this scope was erased meanwhile; nothing may be written in its name."""


class NotFound(MemoryFault):
    """There is no such object in this scope."""


class Postponed(MemoryFault):
    """No credential is available: the work waits for its tenant's next request."""


class TooLong(MemoryFault):
    """A prompt of ours exceeds its model's window; unchanged, it would be refused again."""


class Unusable(MemoryFault):
    """A model's answer to a background call cannot be used; it is retried, but not often.

    is_last: another try would be of no use.
    """

    def __init__(self, message: str, *, is_last: bool = False) -> None:
        super().__init__(message)
        self.is_last = is_last


class ToolError(Exception):
    """A refusal the model can act on: what was wrong, the limit, the next step."""


class UnknownBlock(ToolError):
    """There is no block with that label; the message lists the existing ones."""


class BlockFull(ToolError):
    """The edit would exceed the block's limit."""


class TooManyBlocks(ToolError):
    """The user has as many blocks as one may have."""


class BlockSpaceFull(ToolError):
    """The edit would exceed the characters that a user's blocks have together."""


class BlockReadOnly(ToolError):
    """The block may not be changed, in any way."""


class BadFileName(ToolError):
    """The name cannot be that of a file."""


class BadSkill(ToolError):
    """A member of a skill cannot be used. param: which one."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class BadArguments(ToolError):
    """The call's arguments cannot be used."""
