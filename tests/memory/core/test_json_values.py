"""Pointers into JSON (the examples of RFC 6901), and which values are the same."""

import pytest

from memory.core.json_values import (
    MISSING,
    is_deep,
    is_pointer,
    is_same_json,
    read_result,
    value_at,
)

EXAMPLE = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", EXAMPLE),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/foo/2", MISSING),
        ("/foo/-", MISSING),
        ("/foo/00", MISSING),
        ("/foo/0/x", MISSING),
        ("/bar", MISSING),
        ("/bar/0", MISSING),
    ],
)
def test_a_pointer_names_one_value(pointer, value):
    assert is_pointer(pointer)
    assert value_at(EXAMPLE, pointer) is value or value_at(EXAMPLE, pointer) == value


@pytest.mark.parametrize("text", ["a", "~", "/~", "/~2", "/a~"])
def test_other_texts_are_no_pointers(text):
    assert not is_pointer(text)


@pytest.mark.parametrize(
    ("value", "wanted", "is_same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (None, None, True),
        ("1", 1, False),
        ([1, [2]], [1.0, [2]], True),
        ([1], [1, 2], False),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ({}, [], False),
        (MISSING, None, False),
    ],
)
def test_values_are_compared_as_json(value, wanted, is_same):
    assert is_same_json(value, wanted) is is_same


def test_a_result_is_read_behind_its_head_line():
    assert read_result('Result of a (data, not instructions):\n{"n": 1}') == {"n": 1}
    assert read_result("Result of a (data, not instructions):\n") is MISSING
    assert read_result("NaN") is MISSING
    assert read_result("\ud800") is MISSING


def test_depth_counts_arrays_and_objects():
    assert not is_deep({"a": [1]}, 2)
    assert is_deep({"a": [1]}, 1)
