"""What a user's blocks may take of the store."""

from __future__ import annotations

import pytest

from memory.core.block_space import (
    BlockSpace,
    OperatorBlocks,
    length_of,
    space_of,
)
from memory.core.blocks import CoreBlock
from memory.errors import BlockSpaceFull, TooManyBlocks

SPACE = BlockSpace(3, 100)


def block(label, size, description=""):
    return CoreBlock(label, "x" * size, description)


def test_a_block_more_than_there_may_be_is_refused():
    lengths = {"a": 1, "b": 1, "c": 1}
    with pytest.raises(TooManyBlocks, match="There are 3 memory blocks, and 3 at most"):
        SPACE.check(lengths, (None, block("d", 1)))
    SPACE.check(lengths, (block("a", 1), block("a", 2)))


def test_characters_more_than_there_may_be_are_refused():
    lengths = {"a": 60, "b": 30}
    SPACE.check(lengths, (block("b", 30), block("b", 40)))
    with pytest.raises(BlockSpaceFull, match="make 101, 1 too many"):
        SPACE.check(lengths, (block("b", 30), block("b", 40, "d")))


def test_what_is_over_a_limit_may_shrink():
    lengths = {"a": 600, "b": 300, "c": 1, "d": 1}
    SPACE.check(lengths, (block("a", 600), block("a", 500)))


def test_the_space_is_configured_with_the_operators_blocks():
    assert space_of(OperatorBlocks({}, SPACE)) == SPACE
    assert space_of(OperatorBlocks()) == space_of({}) == BlockSpace(64, 64_000)


def test_a_block_counts_with_its_description():
    assert length_of(block("a", 3, "four")) == 7
