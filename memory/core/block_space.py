"""How many blocks a user may have, and how long they may be in all. Pure.

Every block is sent with every request, so what one user may store in blocks is what each of their
requests may cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory.core.blocks import CoreBlock
from memory.errors import BlockSpaceFull, TooManyBlocks


def length_of(block: CoreBlock) -> int:
    """Return the characters of a block that count: its value and its description."""
    return len(block.value) + len(block.description)


@dataclass(frozen=True, slots=True)
class BlockSpace:
    """Limits of one user's blocks. characters: of all values and descriptions together.

    shared_characters: of the shared blocks that are shown beside them.
    """

    blocks: int = 64
    characters: int = 64_000
    shared_characters: int = 16_000

    def check(self, lengths: Mapping[str, int], change: tuple[CoreBlock | None, CoreBlock]) -> None:
        """Raise TooManyBlocks or BlockSpaceFull for a change that grows beyond a limit.

        lengths: characters of the blocks that there are, by label. change: a block before (None:
        absent) and after.
        """
        old_block, new_block = change
        if old_block is None and len(lengths) >= self.blocks:
            raise TooManyBlocks(
                f"There are {len(lengths)} memory blocks, and {self.blocks} at most. Use one of "
                "them, or delete one first."
            )
        grown = length_of(new_block) - (length_of(old_block) if old_block else 0)
        total = sum(lengths.values()) + grown
        if grown > 0 and total > self.characters:
            raise BlockSpaceFull(
                f"All memory blocks together hold at most {self.characters} characters and this "
                f"would make {total}, {total - self.characters} too many. Shorten a block, or "
                "store details in archival memory (archival_memory_insert)."
            )


class BlockTally:
    """A user's blocks while several change. blocks: by label, the operator's included."""

    def __init__(self, space: BlockSpace, blocks: Mapping[str, CoreBlock]) -> None:
        self.blocks = dict(blocks)
        self._space = space
        self._lengths = {label: length_of(block) for label, block in blocks.items()}

    def put(self, label: str, new_block: CoreBlock | None) -> None:
        """Change a block, or remove it. Raises TooManyBlocks, BlockSpaceFull."""
        old_block = self.blocks.pop(label, None)
        if new_block is not None:
            self._space.check(self._lengths, (old_block, new_block))
            self.blocks[label] = new_block
            self._lengths[label] = length_of(new_block)
        else:
            self._lengths.pop(label, None)


class OperatorBlocks(dict[str, CoreBlock]):
    """The operator's blocks by label, and the space that a user's blocks have with them."""

    def __init__(
        self, blocks: Mapping[str, CoreBlock] | None = None, space: BlockSpace | None = None
    ) -> None:
        super().__init__(blocks or {})
        self.space = space or BlockSpace()


def space_of(defaults: Mapping[str, CoreBlock]) -> BlockSpace:
    """Return the space that is configured with the operator's blocks."""
    if isinstance(defaults, OperatorBlocks):
        return defaults.space
    return BlockSpace()
