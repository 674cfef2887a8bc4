"""Edits of a block from outside a conversation (API, CLI, dashboard, import), as pure functions
over the block.

The same laws as for the model's tools hold: what is read-only stays as it is, nothing passes its
limit. The messages are for a developer, not for a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memory.core.blocks import Block, check_label
from memory.errors import BadArguments, BlockFull, BlockReadOnly, NotFound

Edit = Callable[[Block | None], Block | None]
LIMIT = 4000  # characters, of a block that is made without one


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """What to set; None leaves a member as it is. limit in characters."""

    value: str | None = None
    description: str | None = None
    limit: int | None = None
    read_only: bool | None = None


def put_block(label: str, change: BlockEdit, operators: Mapping[str, Block]) -> Edit:
    """Create the block, or changes the one there is.

    Raises BadArguments for a label that cannot be one.
    """
    check_label(label)
    return lambda block: _checked_change(block or Block(label, limit=LIMIT), change, operators)


def patch_block(label: str, change: BlockEdit, operators: Mapping[str, Block]) -> Edit:
    """Change a block that is there; the edit raises NotFound for an absent one."""
    return lambda block: _checked_change(_there(block, label), change, operators)


def remove_block(label: str) -> Edit:
    """Delete a block; its versions stay, so that undo restores it."""

    def edit(block: Block | None) -> None:
        writable(_there(block, label))

    return edit


def _there(block: Block | None, label: str) -> Block:
    if block is None:
        raise NotFound(f"There is no memory block {label!r}.")
    return block


def _checked_change(block: Block, change: BlockEdit, operators: Mapping[str, Block]) -> Block:
    wanted = {n: v for n in BlockEdit.__slots__ if (v := getattr(change, n)) is not None}
    after = replace(block, **wanted)
    if after == block:
        return block
    writable(block)
    if after.read_only and block.label in operators:
        raise BadArguments(
            f"Whether {block.label!r} is read-only is the operator's to say, in the "
            "configuration. Leave out read_only."
        )
    return require_fit(after)


def writable(block: Block) -> None:
    """Raises BlockReadOnly."""
    if block.read_only:
        raise BlockReadOnly(
            f"The block {block.label!r} is read-only: it cannot be edited, described or deleted."
        )


def require_fit(block: Block) -> Block:
    """Return the block, or BlockFull naming its limit, what was asked and by how much that is
    over.
    """
    if (over := len(block.value) - block.limit) > 0:
        raise BlockFull(
            f"The block {block.label!r} holds at most {block.limit} characters and this would "
            f"make {len(block.value)}, {over} too many. "
            "Shorten the value or raise the limit."
        )
    return block
