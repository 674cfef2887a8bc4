"""Edits of a block from outside a conversation."""

from __future__ import annotations

import pytest

from memory.core.blocks import CoreBlock
from memory.core.edits import LIMIT, BlockEdit, patch_block, put_block, remove_block
from memory.errors import BadArguments, BlockFull, BlockReadOnly, NotFound

HUMAN = CoreBlock("human", "Likes tea.", "About the user", limit=20)
LOCKED = CoreBlock("rules", "Be kind.", read_only=True)


def test_a_put_creates_a_block_or_changes_the_one_there_is():
    made = put_block("notes", BlockEdit("x"), {})(None)
    assert (made.value, made.limit, made.read_only) == ("x", LIMIT, False)
    changed = put_block("human", BlockEdit("y"), {})(HUMAN)
    assert (changed.value, changed.description, changed.limit) == ("y", "About the user", 20)


def test_a_patch_needs_a_block():
    assert patch_block("human", BlockEdit(description="d"), {})(HUMAN).description == "d"
    with pytest.raises(NotFound, match="no memory block 'human'"):
        patch_block("human", BlockEdit("x"), {})(None)
    with pytest.raises(NotFound):
        remove_block("human")(None)


def test_an_edit_that_changes_nothing_gives_the_same_block():
    assert patch_block("human", BlockEdit("Likes tea."), {})(HUMAN) is HUMAN
    assert patch_block("rules", BlockEdit(), {})(LOCKED) is LOCKED


def test_a_removed_block_is_gone():
    assert remove_block("human")(HUMAN) is None


@pytest.mark.parametrize("edit", [patch_block("rules", BlockEdit("x"), {}), remove_block("rules")])
def test_what_is_read_only_stays_as_it_is(edit):
    with pytest.raises(BlockReadOnly, match="'rules' is read-only"):
        edit(LOCKED)


def test_only_the_operator_locks_an_operators_block():
    assert patch_block("human", BlockEdit(read_only=True), {})(HUMAN).read_only
    with pytest.raises(BadArguments, match="Leave out read_only"):
        patch_block("human", BlockEdit(read_only=True), {"human": HUMAN})(HUMAN)


def test_a_value_or_a_limit_that_does_not_fit_is_refused_with_the_excess():
    with pytest.raises(BlockFull, match=r"at most 20 characters .* make 25, 5 too many"):
        patch_block("human", BlockEdit("x" * 25), {})(HUMAN)
    with pytest.raises(BlockFull, match="at most 5 characters"):
        patch_block("human", BlockEdit(limit=5), {})(HUMAN)


def test_a_label_that_cannot_be_one_is_refused():
    with pytest.raises(BadArguments):
        put_block("Human", BlockEdit("x"), {})
