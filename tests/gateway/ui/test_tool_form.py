"""The form of a tool: what a schema asks for is what the form sends, whatever the schema is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.tool_form import PREFIX, BadArgument, list_fields, read_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The city"},
        "days": {"type": "integer", "default": 3},
        "share": {"type": ["number", "null"]},
        "unit": {"enum": ["C", 1, None]},
        "loud": {"type": "boolean"},
        "places": {"type": "array"},
    },
    "required": ["city"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def fill(**texts):
    return {PREFIX + name: text for name, text in texts.items()}


def test_each_kind_of_parameter_has_its_field():
    kinds = [(f.name, f.kind, f.is_required, f.default) for f in list_fields(SCHEMA)]
    assert kinds == [
        ("city", "text", True, ""),
        ("days", "integer", False, "3"),
        ("share", "number", False, ""),
        ("unit", "choice", False, ""),
        ("loud", "choice", False, ""),
        ("places", "json", False, ""),
    ]
    assert [text for text, _ in list_fields(SCHEMA)[3].choices] == ["C", "1", "null"]


def test_what_is_filled_in_is_sent_with_its_type():
    sent = fill(city="a\r\nb", days="2", share="0.5", unit='"C"', loud="false", places='["x"]')
    assert read_arguments(SCHEMA, sent) == {
        "city": "a\nb",
        "days": 2,
        "share": 0.5,
        "unit": "C",
        "loud": False,
        "places": ["x"],
    }
    assert read_arguments(SCHEMA, {}) == {"city": ""}
    assert read_arguments(SCHEMA, {"arguments": '{"any": 1}', **sent}) == {"any": 1}


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (fill(days="two"), "days"),
        (fill(days="2.5"), "days"),
        (fill(days="true"), "days"),
        (fill(share="[1]"), "share"),
        (fill(places="[1"), "places"),
        (fill(places="[" * 90_000), "places"),
        (fill(places="1" * 100_001), "places"),
        ({"arguments": "[1]"}, ""),
    ],
)
def test_what_is_no_argument_is_named(sent, name):
    with pytest.raises(BadArgument) as refused:
        read_arguments(SCHEMA, sent)
    assert refused.value.name == name


def test_a_tool_with_very_many_parameters_takes_json():
    many = {"properties": {f"p{i}": {} for i in range(200)}}
    assert list_fields(many) == []
    assert read_arguments(many, {"arguments": '{"p1": 1}'}) == {"p1": 1}


@given(st.dictionaries(st.sampled_from(["type", "properties", "required", "enum"]), JSON))
def test_any_schema_of_a_server_becomes_fields(schema):
    for field in list_fields(schema):
        assert field.kind in ("text", "integer", "number", "choice", "json")
        assert all(isinstance(text, str) for text, _ in field.choices)


@given(st.dictionaries(st.text(max_size=5), JSON))
def test_any_arguments_can_be_given_as_json(arguments):
    assert read_arguments({}, {"arguments": json.dumps(arguments)}) == arguments
