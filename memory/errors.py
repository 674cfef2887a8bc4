"""What can go wrong in the memory, and whom it is addressed to.

MemoryFault: to the caller (the gateway answers without memory, or refuses).
├── StoreUnavailable   the database does not answer, or not in time
│   └── NotUpgraded    it is another version's
├── Conflict           a stale write: someone else was faster
│   └── AmbiguousName  several things have the name: say whose is meant
├── Erased             the owner was erased after this turn began: its writes are void
├── NotFound           no such thing in this scope
├── Postponed          a job lacks a credential: it waits for its tenant's next request
├── TooLong            what a model was asked in our name passes its window
└── Unusable           a model's answer to a background call cannot be used
ToolError: to the model, as a tool result that says what to do.
├── UnknownBlock · BlockFull · BlockReadOnly
└── BadArguments
"""

from __future__ import annotations


class MemoryFault(Exception):
    """The memory could not do its part."""


class StoreUnavailable(MemoryFault):
    """The store did not answer in time or at all."""


class NotUpgraded(StoreUnavailable):
    """The database has the tables of another version: waiting changes nothing."""


class Conflict(MemoryFault):
    """The thing changed since it was read."""


class AmbiguousName(Conflict):
    """Several things have this name; the caller has to say whose is meant."""


class Erased(MemoryFault):
    """The owner of this scope was erased meanwhile; nothing may be written in its name."""


class NotFound(MemoryFault):
    """Nothing of that name in this scope."""


class Postponed(MemoryFault):
    """No credential is at hand to ask a model with: the work waits for its tenant's next request,
    which brings one.
    """


class TooLong(MemoryFault):
    """A prompt of ours passes its model's window: asked again unchanged, it is refused again."""


class Unusable(MemoryFault):
    """A model answered a background call with something that cannot be used; it is asked again, but
    not often.
    """


class ToolError(Exception):
    """A refusal the model can act on: what was wrong, the limit, the next step."""


class UnknownBlock(ToolError):
    """No block of that label; names those there are."""


class BlockFull(ToolError):
    """The edit would pass the block's limit."""


class BlockReadOnly(ToolError):
    """The block may not be changed, by any verb or door."""


class BadArguments(ToolError):
    """The call's arguments cannot be used as they are."""
