"""Arguments are made to fit their schema, or refused with the value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.arguments import coerce_arguments

STRINGS = {"type": "array", "items": {"type": "integer"}}
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def schema(kind, **more):
    wanted = kind if isinstance(kind, dict) else {"type": kind}
    return {"type": "object", "properties": {"days": {**wanted, **more}}}


@pytest.mark.parametrize(
    ("kind", "value", "fitting"),
    [
        ("integer", "3", 3),
        ("integer", " -3 ", -3),
        ("integer", 3.0, 3),
        ("number", "3.5", 3.5),
        ("number", "3", 3),
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("boolean", 1, True),
        ("string", 3, "3"),
        ("string", 3.5, "3.5"),
        (STRINGS, '[1, "2"]', [1, 2]),
        (PERSON, '{"age": "7"}', {"age": 7}),
        ({"type": ["integer", "null"]}, None, None),
        ({"type": ["null", "integer"]}, "4", 4),
        ({}, {"any": [1]}, {"any": [1]}),
    ],
)
def test_a_value_is_made_to_fit(kind, value, fitting):
    assert coerce_arguments(schema(kind), {"days": value}) == {"days": fitting}


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("integer", "3.5", 'days must be an integer, got "3.5"'),
        ("integer", "soon", 'days must be an integer, got "soon"'),
        ("integer", True, "days must be an integer, got true"),
        ("number", "nan", 'days must be a number, got "nan"'),
        ("boolean", "yes", 'days must be true or false, got "yes"'),
        ("string", True, "days must be a text, got true"),
        (STRINGS, 3, "days must be a list, got 3"),
        (STRINGS, ["x"], 'days[0] must be an integer, got "x"'),
        (PERSON, {}, "days.age is missing"),
        ({"type": "string", "enum": ["a"]}, "b", 'days must be one of "a", got "b"'),
        ({"type": "integer", "minimum": 1}, 0, "days must be at least 1, got 0"),
    ],
)
def test_what_would_be_a_guess_is_refused_with_the_value(kind, value, words):
    assert coerce_arguments(schema(kind), {"days": value}) == words


def test_missing_and_unknown_arguments_are_named_with_those_that_there_are():
    wanted = {**schema("integer"), "required": ["days"]}
    assert coerce_arguments(wanted, {}) == 'the argument "days" is missing; there are: days'
    assert coerce_arguments(wanted, {"x": 1}) == 'there is no argument "x"; there are: days'


def test_null_is_the_default_where_there_is_one():
    wanted = schema("integer", default=5)
    assert coerce_arguments(wanted, {"days": None}) == {"days": 5}
    assert coerce_arguments(wanted, {}) == {"days": 5}


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_any_value_gives_arguments_or_words(value):
    for kind in ("integer", "number", "boolean", "string", "array", "object"):
        assert isinstance(coerce_arguments(schema(kind), {"days": value}), dict | str)
