"""Arguments fit the schema, or the error names the argument, the type and the value."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gateway.tools.coercion import coerce_arguments, list_arguments, quote

LAX = ConfigDict(coerce_numbers_to_str=True)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["3", "3.0", "3.5", " 3 ", "1_000", "1e3", "true", "Yes", "off", "0", ""]),
)
ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float),
    "boolean": TypeAdapter(bool),
    "string": TypeAdapter(str, config=LAX),
}


def one(schema: dict[str, Any], value: Any) -> Any:
    """The coerced value of one argument, or the text of an error."""
    out = coerce_arguments({"type": "object", "properties": {"x": schema}}, {"x": value})
    return out if isinstance(out, str) else out["x"]


@given(SCALARS.filter(lambda value: value is not None), st.sampled_from(sorted(ADAPTERS)))
def test_a_scalar_is_read_as_pydantic_reads_it(value, kind):
    try:
        expected = ADAPTERS[kind].validate_python(value)
    except ValidationError:
        expected = None
    actual = coerce_arguments(
        {"properties": {"x": {"type": kind}}, "required": ["x"]}, {"x": value}
    )
    if expected is None or expected != expected or expected in (float("inf"), float("-inf")):
        assert isinstance(actual, str)
        assert actual.startswith("x must be ")
    else:
        assert actual == {"x": expected}


@given(st.lists(st.one_of(st.booleans(), st.integers(), st.text(max_size=3)), max_size=4))
def test_a_list_is_what_its_json_text_is(items):
    import json

    schema = {"type": "array", "items": {"type": "string"}}
    assert one(schema, items) == one(schema, json.dumps(items)) or isinstance(
        one(schema, items), str
    )


INTEGER = {"type": "integer"}
COERCED = [
    (INTEGER, "3", 3),
    (INTEGER, 3.0, 3),
    (INTEGER, "3.0", 3),
    ({"type": "number"}, "3.5", 3.5),
    ({"type": "number"}, 3, 3),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": "boolean"}, 0, False),
    ({"type": "string"}, 5, "5"),
    ({"type": "string"}, 2.5, "2.5"),
    ({"type": "array", "items": INTEGER}, '["1", 2]', [1, 2]),
    ({"type": "array", "items": INTEGER}, ["1", 2.0], [1, 2]),
    ({"type": "object", "additionalProperties": INTEGER}, '{"a": "1"}', {"a": 1}),
    ({"type": "string", "format": "date"}, "2026-11-26", "2026-11-26"),
    ({"type": "string", "format": "date"}, "2026-11-26T00:00:00", "2026-11-26"),
    ({"type": "string", "format": "date-time"}, "2026-11-26T10:00Z", "2026-11-26T10:00Z"),
    ({"enum": ["a", "b"]}, "b", "b"),
    ({"enum": [1, 2]}, "2", 2),
    ({"anyOf": [INTEGER, {"type": "null"}]}, None, None),
    ({"anyOf": [INTEGER, {"type": "string"}]}, "3", "3"),
    ({"anyOf": [{"type": "number"}, {"type": "boolean"}]}, "true", True),
    ({"type": ["integer", "null"]}, "7", 7),
    ({"type": "number"}, 10**20, 10**20),
    ({}, {"any": [1]}, {"any": [1]}),
]


@pytest.mark.parametrize(("schema", "value", "expected"), COERCED)
def test_what_is_meant_is_accepted(schema, value, expected):
    actual = one(schema, value)
    assert actual == expected
    assert type(actual) is type(expected)


REFUSED = [
    (INTEGER, "soon", 'x must be an integer, got "soon"'),
    (INTEGER, "3.5", 'x must be an integer, got "3.5"'),
    (INTEGER, 3.5, "x must be an integer, got 3.5"),
    ({"type": "array", "items": INTEGER}, 5, "x must be a list of integers, got 5"),
    ({"type": "array"}, '{"a": 1}', 'x must be a list, got "{\\"a\\": 1}"'),
    ({"type": "array", "items": INTEGER}, [1, "b"], 'x[1] must be an integer, got "b"'),
    ({"type": "string"}, True, "x must be text, got true"),
    ({"type": "string"}, ["a"], 'x must be text, got ["a"]'),
    ({"type": "number"}, "nan", 'x must be a number, got "nan"'),
    ({"type": "number"}, "inf", 'x must be a number, got "inf"'),
    ({"type": "boolean"}, "maybe", 'x must be true or false, got "maybe"'),
    ({"type": "object"}, "[]", 'x must be an object, got "[]"'),
    ({"enum": ["a", "b"]}, "c", 'x must be one of "a", "b", got "c"'),
    ({"enum": [1]}, True, "x must be 1, got true"),
    ({"const": "a"}, "b", 'x must be "a", got "b"'),
    (
        {"type": "string", "format": "date"},
        "2026-11-26T10:00:00",
        'x must be a date such as 2026-11-26, got "2026-11-26T10:00:00"',
    ),
    (
        {"type": "string", "format": "date-time"},
        1732579200,
        "x must be a date and time such as 2026-11-26T10:30:00Z, got 1732579200",
    ),
    (
        {"anyOf": [INTEGER, {"type": "null"}]},
        "soon",
        'x must be an integer or null, got "soon"',
    ),
    ({"type": "integer", "minimum": 1}, 0, "x must be at least 1, got 0"),
    ({"type": "integer", "exclusiveMaximum": 5}, "5", "x must be less than 5, got 5"),
    ({"type": "string", "maxLength": 2}, "abc", 'x must have a length of at most 2, got "abc"'),
    ({"type": "array", "minItems": 1}, [], "x must have a length of at least 1, got []"),
]


@pytest.mark.parametrize(("schema", "value", "expected"), REFUSED)
def test_what_is_not_meant_is_an_error_that_names_it(schema, value, expected):
    assert one(schema, value) == expected


def test_a_missing_and_an_unknown_argument_are_named_with_the_known_ones():
    schema = {
        "type": "object",
        "properties": {"days": INTEGER, "where": {"type": "array"}, "now": {"type": "boolean"}},
        "required": ["days"],
    }
    known = "The arguments are: days (integer), where (list), now (boolean)"
    assert coerce_arguments(schema, {}) == f"days is missing. {known}"
    assert coerce_arguments(schema, {"day": 1}) == f'there is no argument "day". {known}'
    assert coerce_arguments({"type": "object"}, {"a": 1}).endswith("This tool takes no arguments")
    many = {f"p{at}": INTEGER for at in range(30)}
    assert list_arguments(many).endswith("and 10 more")


def test_null_is_the_default_where_it_is_no_value():
    schema = {
        "properties": {
            "days": {"type": "integer", "default": 7},
            "unit": {"type": "string"},
            "town": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": "Rome"},
            "must": {"type": "string"},
        },
        "required": ["must"],
    }
    assert coerce_arguments(schema, {"days": None, "unit": None, "town": None, "must": "a"}) == {
        "days": 7,
        "town": None,
        "must": "a",
    }
    assert coerce_arguments(schema, {"must": "a"}) == {"must": "a", "days": 7, "town": "Rome"}
    assert coerce_arguments(schema, {"must": None}) == "must must be text, got null"


def test_members_of_an_object_are_coerced_in_place():
    schema = {
        "properties": {
            "where": {
                "type": "object",
                "properties": {"row": INTEGER},
                "required": ["row"],
                "additionalProperties": False,
            }
        }
    }
    assert coerce_arguments(schema, {"where": {"row": "1"}}) == {"where": {"row": 1}}
    assert coerce_arguments(schema, {"where": {}}) == "where.row is missing"
    assert coerce_arguments(schema, {"where": {"row": "b"}}) == (
        'where.row must be an integer, got "b"'
    )
    assert coerce_arguments(schema, {"where": {"row": 1, "x": 1}}) == ('where has no member "x"')


def test_a_value_is_quoted_shortly():
    assert len(quote("a" * 10_000)) == 80
    assert quote(date) == "type"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
SCHEMA_WORDS = st.sampled_from(
    [
        "type",
        "items",
        "properties",
        "required",
        "additionalProperties",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "format",
        "minimum",
        "maxLength",
        "minItems",
        "default",
    ]
)
KIND_WORDS = st.sampled_from(["integer", "number", "boolean", "string", "array", "object", "null"])
SCHEMAS = st.recursive(
    JSON_VALUES | KIND_WORDS | st.lists(KIND_WORDS, max_size=3),
    lambda inner: st.dictionaries(SCHEMA_WORDS, inner | st.lists(inner, max_size=2), max_size=4),
    max_leaves=8,
)


@given(SCHEMAS, JSON_VALUES)
def test_any_value_under_any_schema_gives_arguments_or_words(schema, value):
    result = coerce_arguments({"properties": {"x": schema}}, {"x": value})
    assert isinstance(result, dict) or result.startswith(("x", "the value"))


def test_deep_unions_cost_one_try_a_branch():
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(16):
        schema = {"anyOf": [{"type": "array", "items": schema}, {"type": "null"}]}
    value: Any = "x"
    for _ in range(16):
        value = [value]
    assert isinstance(one(schema, value), (str, list))


UNIONS = [
    (TypeAdapter(annotation, config=LAX), schema)
    for annotation, schema in (
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
        (bool | str, {"anyOf": [{"type": "boolean"}, {"type": "string"}]}),
        (Literal["3", "true"], {"enum": ["3", "true"]}),
    )
]


@given(SCALARS)
def test_optional_and_literal_agree_with_pydantic(value):
    for adapter, schema in UNIONS:
        try:
            expected = adapter.validate_python(value)
        except ValidationError:
            continue
        assert one(schema, value) == expected
