"""mem0's memories become passages."""

from __future__ import annotations

import pytest

from memory.formats.mem0 import parts, read
from memory.formats.records import BrokenItem
from tests.memory.formats.shapes import uuid

ROW = {
    "id": uuid(9),
    "memory": "Likes tea",
    "user_id": "ada",
    "categories": ["food", 3],
    "created_at": "2024-07-20T01:30:36.275141-07:00",
}


def test_a_memory_keeps_its_id_time_and_categories():
    (bundle,) = read(ROW)
    (line,) = bundle.lines
    assert (bundle.owner, line.content, line.tags) == ("ada", "Likes tea", ["food"])
    assert line.id == f"passage_{uuid(9).replace('-', '')}"
    assert line.created_at == "2024-07-20T08:30:36.275Z"


def test_an_answer_is_its_memories():
    assert parts({"results": [ROW, 3]}) == [ROW, 3]
    assert parts({"memories": [ROW]}) == [ROW]
    assert parts(ROW) == [ROW]


@pytest.mark.parametrize("value", [None, 3, {}, {"memory": ""}, {"memory": 7}])
def test_what_is_no_memory_is_told(value):
    with pytest.raises(BrokenItem, match="memory"):
        list(read(value))


def test_a_memory_of_few_members_is_one():
    (bundle,) = read({"memory": "x", "categories": {"a": 1}})
    assert (bundle.owner, bundle.lines[0].id, bundle.lines[0].created_at) == ("", None, None)
