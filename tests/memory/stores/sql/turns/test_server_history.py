"""How far back a history kept here is read: what there is room for, and what a summary stands
for.
"""

from __future__ import annotations

from collections import namedtuple

from hypothesis import given
from hypothesis import strategies as st

from memory.stores.sql.turns.server_history import MAX_HISTORY_BYTES, _choose_turns

Turn = namedtuple("Turn", "id chain size")


def line(count, size=10):
    """The newest first."""
    return [Turn(i, b"%d" % i, size) for i in reversed(range(count))]


def read(walked, there=(), cut=None, room=100):
    return _choose_turns(
        iter(walked), {b"%d" % i for i in there}, None if cut is None else b"%d" % cut, room
    )


def test_a_line_that_there_is_room_for_is_read_whole():
    assert read(line(5), there=[2]) == ([4, 3, 2, 1, 0], None)


def test_a_running_epoch_is_read_to_its_cut():
    assert read(line(50), there=[20, 45, 47], cut=45) == ([49, 48, 47, 46], b"45")


def test_else_the_summary_counts_that_leaves_out_least():
    assert read(line(50), there=[20, 43, 47]) == ([49, 48, 47, 46, 45, 44], b"43")


def test_without_a_summary_in_reach_the_next_one_does():
    assert read(line(50), there=[3, 20]) == (list(range(49, 20, -1)), b"20")


def test_what_no_summary_stands_for_is_read_up_to_a_bound():
    assert read(line(50)) == (list(range(49, -1, -1)), None)
    turns, link = read(line(50, size=MAX_HISTORY_BYTES // 10))
    assert (len(turns), link) == (11, b"38")


def test_the_newest_turn_is_always_read():
    assert read(line(3), there=[2], cut=2) == ([2, 1, 0], None)


@given(st.integers(1, 400), st.sets(st.integers(0, 400)), st.integers(0, 5000))
def test_no_more_of_the_line_is_looked_at_than_is_needed(count, there, room):
    looked = []

    def walked():
        for turn in line(count):
            looked.append(turn.id)
            yield turn

    turns, link = _choose_turns(walked(), {b"%d" % i for i in there}, None, room)
    assert turns == list(range(count - 1, count - 1 - len(turns), -1))
    if link is not None:
        assert int(link) == turns[-1] - 1
        assert len(looked) <= max(room // 10 + 3, len(turns) + 1)
