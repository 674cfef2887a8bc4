"""Which shared blocks a memory shows, and who wrote which line: laws over random histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.core.block_space import BlockSpace
from memory.core.blocks import CoreBlock, compile_core
from memory.core.edits import BlockEdit
from memory.core.shared import (
    MOST_BLOCKS,
    RANKS,
    Membership,
    SeenBlock,
    ShownBlocks,
    attribute_lines,
    change_block,
    choose_shown,
    may_undo,
    rename_writer,
    without_lines_of,
)
from memory.errors import BlockFull, BlockReadOnly

labels = st.sampled_from(["board", "notes", "plan"])
memberships = st.builds(
    Membership, st.sampled_from(sorted(RANKS)), st.sampled_from(["", "helper"]), st.booleans()
)
lines = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=5).map("\n".join)


@st.composite
def seen_blocks(draw):
    ident = f"block_{draw(st.integers(0, 10_000))}"
    value = "x" * draw(st.integers(0, 9000))
    block = CoreBlock(draw(labels), value, read_only=draw(st.booleans()), id=ident)
    by = draw(st.lists(memberships, min_size=1, max_size=3))
    return SeenBlock.of(block, by, draw(st.floats(0, 9)), draw(st.integers(0, 3))), by


@given(st.lists(seen_blocks(), max_size=12))
def test_the_nearest_block_of_each_label_is_shown_as_far_as_there_is_room(found):
    seen = [one for one, _ in found]
    shown = choose_shown(seen, BlockSpace())
    assert sum(len(one.block.value) for one in shown.blocks.values()) <= 16_000
    assert {*shown.blocks, *shown.left_out} == {one.block.label for one in seen}
    for label, one in shown.blocks.items():
        of_label = [other for other in seen if other.block.label == label]
        assert one.rank == min(other.rank for other in of_label)
        assert all(
            choose_shown(seen, BlockSpace(shared_characters=10**9)).blocks[far].rank >= one.rank
            for far in shown.left_out
        )


@given(seen_blocks())
def test_a_memory_may_write_if_any_membership_says_so_and_the_block_is_not_read_only(found):
    one, by = found
    if not one.block.read_only:
        assert any(membership.write for membership in by)
    assert one.block.shared
    nearer = replace(by[0], kind="user", agent="helper")
    assert SeenBlock.of(one.block, [nearer, *by], 0, 0).rank == 0


def test_no_more_blocks_are_shown_than_one_memory_has_room_for():
    seen = [
        SeenBlock(CoreBlock(f"b{i:02}", "x", id=f"{i:02}", shared=True), 1, i, 0) for i in range(30)
    ]
    shown = choose_shown(reversed(seen), BlockSpace())
    assert list(shown.blocks) == [f"b{i:02}" for i in range(MOST_BLOCKS)]
    assert list(shown.left_out) == [f"b{i:02}" for i in range(MOST_BLOCKS, 30)]


def test_blocks_attached_to_an_agent_have_the_room_of_own_ones():
    seen = [
        SeenBlock(CoreBlock(f"b{i:02}", "x" * 2000, id=f"{i:02}"), 2, i, 0, attached=True)
        for i in range(40)
    ]
    shown = choose_shown(seen, BlockSpace(64, 64_000, 16_000))
    assert list(shown.blocks) == [f"b{i:02}" for i in range(32)]
    assert len(choose_shown(seen, BlockSpace(10, 64_000, 16_000)).blocks) == 10


def test_a_mark_differs_after_each_change_that_begins_a_new_epoch():
    block = CoreBlock("board", "Plan", id="block_1", version=3, shared=True)
    one = SeenBlock(block, 1, 0.0, 0)
    mark = ShownBlocks({"board": one}).mark
    others = [
        {},
        {"board": replace(one, outside=1)},
        {"board": replace(one, block=replace(block, read_only=True))},
        {"board": replace(one, block=replace(block, id="block_2"))},
        {"board": one, "notes": replace(one, block=replace(block, id="block_3"))},
    ]
    marks = [ShownBlocks(other).mark for other in others]
    assert len({mark, *marks}) == 6
    assert marks[0] == 0
    by_model = replace(one, block=replace(block, value="Other", version=4))
    assert ShownBlocks({"board": by_model}).mark == mark
    assert ShownBlocks({}).mix_mark(7) == 7
    assert 0 <= ShownBlocks({"board": one}).mix_mark(7) < 2**31


def test_a_shared_block_takes_the_place_of_an_own_one_and_stands_behind_the_others():
    own = {label: CoreBlock(label, f"Own {label}") for label in ("board", "zebra")}
    seen = SeenBlock(CoreBlock("board", "Plan", shared=True, read_only=True), 1, 0.0, 0)
    over = ShownBlocks({"board": seen}).over(own)
    core = compile_core(list(over.values()), "0a1b2c3d4e")
    assert core.index("<zebra ") < core.index('<board description="" chars="4/4000" shared="true" ')
    assert "Own board" not in core
    assert core.count("Others read the blocks marked shared") == 1
    assert "shared" not in compile_core(list(own.values()), "0a1b2c3d4e")


@given(st.lists(st.tuples(lines, st.sampled_from(["ann", "bob", None])), max_size=8))
def test_a_line_stays_its_writers_as_long_as_it_stands(edits):
    value, writers, since = "", [], {}
    for after, who in edits:
        writers = attribute_lines((value, writers), after, who)
        value = after
        there = value.split("\n") if value else []
        since = {line: since.get(line, who) for line in there}
        assert writers == [since[line] for line in there]
    left, others = without_lines_of(value, writers, "ann")
    assert "ann" not in others
    assert (left.split("\n") if others else []) == [
        line for line, who in zip(value.split("\n"), writers, strict=False) if who != "ann"
    ]


def test_writers_that_are_not_known_are_nobody():
    assert without_lines_of("", [], "ann") == ("", [])
    assert without_lines_of("a\nb", ["ann"], "ann") == ("b", [None])
    assert rename_writer(["ann", None, "bob"], "ann", "zoe") == ["zoe", None, "bob"]
    assert may_undo("ann", None)
    assert may_undo("ann", ["ann"])
    assert not may_undo(None, ["ann"])


def test_a_block_that_is_read_only_changes_only_where_that_is_taken_back():
    block = CoreBlock("board", "Plan", read_only=True, limit=10)
    assert change_block(block, BlockEdit("Plan")) is block
    with pytest.raises(BlockReadOnly):
        change_block(block, BlockEdit("Other"))
    after = change_block(block, BlockEdit("Other", read_only=False))
    assert (after.value, after.read_only) == ("Other", False)
    with pytest.raises(BlockFull):
        change_block(after, BlockEdit("Eleven char"))
