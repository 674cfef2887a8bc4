"""A part of an answer is known by its id, its order and its index together."""

from __future__ import annotations

import pytest

from gateway.wire.answer_parts import IDENTS, AnswerPart, PartKey, Parts


def key(index=None, ident="", kind="", name=""):
    return PartKey(index, (ident,) if ident else (), kind, name)


def play(*steps):
    """The orders of the parts that steps belong to; None where a step belongs to none."""
    parts = Parts(AnswerPart)
    out = []
    for step, what in steps:
        if step == "end":
            part = parts.find_end(what)
            if part is not None:
                parts.end(part)
        else:
            part = getattr(parts, step)(what)
        out.append(None if part is None else part.order)
    return out


CASES = {
    "every beginning is a new part, also at a used index": (
        [("begin", key(0, "a")), ("begin", key(0, "b")), ("begin", key(0)), ("begin", key(0))],
        [0, 1, 2, 3],
    ),
    "a beginning that is told twice is one": (
        [("begin", key(0, "a")), ("begin", key(0, "a")), ("find", key(0, "a"))],
        [0, 0, 0],
    ),
    "a beginning with a used id, after a piece": (
        [("begin", key(0, "a")), ("find", key(0, "a")), ("begin", key(0, "a"))],
        [0, 0, 1],
    ),
    "an id leads to its part whatever the index": (
        [("begin", key(0, "a")), ("begin", key(0, "b")), ("find", key(0, "a"))],
        [0, 1, 0],
    ),
    "an index leads to the newest open part there, of the same kind": (
        [
            ("begin", key(0, "a", "message")),
            ("begin", key(0, "b", "call")),
            ("find", key(0, "x", "message")),
            ("find", key(0, "y", "call")),
        ],
        [0, 1, 0, 1],
    ),
    "an end at an index ends the oldest": (
        [("begin", key(0)), ("begin", key(0)), ("end", key(0)), ("end", key(0)), ("end", key(0))],
        [0, 1, 0, 1, None],
    ),
    "without an index the newest open part of the kind": (
        [
            ("begin", key(None, "a", "message")),
            ("begin", key(None, "b", "call")),
            ("find", key(None, "", "message")),
            ("find", key(None, "", "call")),
        ],
        [0, 1, 0, 1],
    ),
    "where no beginning was told, another id is another part": (
        [("imply", key(None, "a", "call")), ("find", key(None, "b", "call"))],
        [0, None],
    ),
    "a piece after its end": (
        [("begin", key(3)), ("end", key(3)), ("find", key(3)), ("find", key(4))],
        [0, 0, 0, None],
    ),
    "a piece with another id after an end is of another part": (
        [("begin", key(3, "a")), ("end", key(3, "a")), ("find", key(3, "b"))],
        [0, 0, None],
    ),
    "an index that the beginning left out": (
        [("begin", key(None, "a")), ("find", key(5)), ("find", key(5))],
        [0, 0, 0],
    ),
    "another name is another part": (
        [("begin", key(0, "", "call", "f")), ("end", key(0, "", "call", "g"))],
        [0, None],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_events_find_their_part(case):
    steps, expected = CASES[case]
    assert play(*steps) == expected


def test_a_list_of_all_parts_is_matched_by_id_then_by_kind():
    parts = Parts(AnswerPart)
    for what in (key(0, "a", "message"), key(0, "b", "call", "f"), key(0, "c", "call")):
        parts.begin(what)
    listed = [key(None, "x", "call", "f"), key(None, "a", "message"), key(None, "", "call", "g")]
    matches = parts.match([*listed, key(None, "new", "call", "h")])
    assert [m and m.order for m in matches] == [1, 0, 2, None]
    assert [p.order for p in parts.open_parts()] == [0, 1, 2]


def test_a_part_whose_id_changes_with_each_event_remembers_few():
    parts = Parts(AnswerPart)
    part = parts.begin(key(0, "a"))
    for n in range(100):
        assert parts.find(key(0, f"id_{n}")) is part
    assert len(part.idents) == IDENTS


def test_many_open_parts_at_one_index_are_found():
    parts = Parts(AnswerPart)
    begun = [parts.begin(key(0)) for _ in range(50)]
    for part in begun:
        assert parts.find_end(key(0)) is part
        parts.end(part)
