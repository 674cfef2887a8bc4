"""Edits of a block from outside a conversation (API, CLI, import), as pure functions.

The same rules apply as for the model's tools: read-only blocks do not change, limits hold. The
messages address a developer, not a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memory.core.blocks import CoreBlock, check_label
from memory.errors import BadArguments, BlockFull, BlockReadOnly, NotFound

Edit = Callable[[CoreBlock | None], CoreBlock | None]
# Characters; default of a new block.
LIMIT = 4000


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """What to set; None leaves a member as it is. limit: in characters."""

    value: str | None = None
    description: str | None = None
    limit: int | None = None
    read_only: bool | None = None


def put_block(label: str, change: BlockEdit, operators: Mapping[str, CoreBlock]) -> Edit:
    """Return an edit that creates the block or changes it.

    Raises BadArguments for an invalid label.
    """
    check_label(label)
    return lambda block: _checked_change(block or CoreBlock(label, limit=LIMIT), change, operators)


def patch_block(label: str, change: BlockEdit, operators: Mapping[str, CoreBlock]) -> Edit:
    """Return an edit that changes an existing block, or raises NotFound."""
    return lambda block: _checked_change(_require_exists(block, label), change, operators)


def remove_block(label: str) -> Edit:
    """Return an edit that deletes a block; its versions stay, so that undo restores it."""

    def edit(block: CoreBlock | None) -> None:
        writable(_require_exists(block, label))

    return edit


def _require_exists(block: CoreBlock | None, label: str) -> CoreBlock:
    if block is None:
        raise NotFound(f"There is no memory block {label!r}.")
    return block


def _checked_change(
    block: CoreBlock, change: BlockEdit, operators: Mapping[str, CoreBlock]
) -> CoreBlock:
    new_values = {
        n: value for n in BlockEdit.__slots__ if (value := getattr(change, n)) is not None
    }
    changed_block = replace(block, **new_values)
    if changed_block == block:
        return block
    writable(block)
    if changed_block.read_only and block.label in operators:
        raise BadArguments(
            f"Whether {block.label!r} is read-only is set by the operator in the "
            "configuration. Leave out read_only."
        )
    return require_fit(changed_block)


def writable(block: CoreBlock) -> None:
    """Raise BlockReadOnly if the block is read-only."""
    if block.read_only:
        raise BlockReadOnly(
            f"The block {block.label!r} is read-only: it cannot be edited, described or deleted."
        )


def require_fit(block: CoreBlock) -> CoreBlock:
    """Return the block. Raises BlockFull naming its limit, the length and the excess."""
    if (over := len(block.value) - block.limit) > 0:
        raise BlockFull(
            f"The block {block.label!r} holds at most {block.limit} characters and this would "
            f"make {len(block.value)}, {over} too many. "
            "Shorten the value or raise the limit."
        )
    return block
