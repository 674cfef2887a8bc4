"""Definitions of tools: their hash, their limits, their names."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools import mcp_definitions as d

OBJECT = {"type": "object"}


@given(st.text(max_size=120), st.text(max_size=40))
def test_any_name_is_one_that_a_model_may_call(prefix, name):
    found = d.model_name(prefix, name)
    assert len(found) <= 64
    assert re.fullmatch(r"[A-Za-z0-9_-]*", found)
    assert d.model_name(prefix, name) == found


def test_long_names_that_differ_stay_apart():
    names = {d.model_name("entry_", "x" * 80 + str(i)) for i in range(50)}
    assert len(names) == 50


@given(st.dictionaries(st.text(max_size=5), st.integers()), st.randoms())
def test_the_hash_is_of_what_is_said_not_of_its_order(members, random):
    pairs = list(members.items())
    random.shuffle(pairs)
    one = d.read_tool({"name": "t", "inputSchema": members, "_meta": {"at": 1}})
    other = d.read_tool({"inputSchema": dict(pairs), "name": "t"})
    assert one == other
    changed = {"name": "t", "inputSchema": {**members, "added": 1}}
    assert d.read_tool(changed).digest != one.digest


@pytest.mark.parametrize("member", ["title", "description", "outputSchema", "annotations"])
def test_every_member_that_a_model_or_a_person_reads_is_in_the_hash(member):
    plain = {"name": "t", "inputSchema": OBJECT}
    assert d.read_tool(plain).digest != d.read_tool({**plain, member: "x"}).digest


def nested(depth):
    schema = {}
    for _ in range(depth - 1):
        schema = {"properties": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (OBJECT, ""),
        ({}, ""),
        (None, "root"),
        ([], "root"),
        ({"type": "string"}, "root"),
        ({"type": ["object"]}, "root"),
        ({"type": "object", "description": "x" * (16 << 10)}, "larger"),
        (nested(16), ""),
        (nested(17), "nested"),
        ({"allOf": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}, "nested"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}}, ""),
        ({"properties": {"a": {"$ref": "https://x.example/a"}}}, "refers"),
        ({"anyOf": [{"$ref": "other.json"}]}, "refers"),
        ({"anyOf": [{"$dynamicRef": "https://x.example/a#b"}]}, "refers"),
        ({"properties": {"$ref": {"type": "string"}}}, ""),
    ],
)
def test_a_schema_that_is_too_much_is_refused(schema, why):
    found = d.why_refused({"inputSchema": schema})
    assert (why in found) if why else not found


def test_a_server_that_lists_too_much_is_not_read():
    tools = [{"name": f"t{i}", "inputSchema": OBJECT} for i in range(d.MAX_TOOLS + 1)]
    assert len(d.read_tools(tools[:-1])) == d.MAX_TOOLS
    with pytest.raises(d.TooManyDefinitions):
        d.read_tools(tools)
    with pytest.raises(d.TooManyDefinitions):
        d.read_tools([{"name": "t", "description": "x" * d.MAX_BYTES}])


def test_what_nobody_sees_is_taken_out_of_every_text_of_a_schema_and_flagged():
    hidden = "Look\u200b up\U000e0041"
    item = {"title": hidden, "enum": ["a\u200b"], "description": "a other_delete"}
    schema = {
        "type": "object",
        "description": hidden,
        "properties": {"description": {"anyOf": [{"items": item}]}, "b\u200b": {"default": hidden}},
    }
    shown = d.visible_schema(schema)
    assert shown["description"] == "Look up"
    assert shown["properties"]["description"]["anyOf"][0]["items"]["title"] == "Look up"
    # What a call has to repeat stays as it is.
    assert shown["properties"]["description"]["anyOf"][0]["items"]["enum"] == ["a\u200b"]
    assert shown["properties"]["b\u200b"] == {"default": hidden}
    definition = {"name": "t", "description": "Plain.", "inputSchema": schema}
    flags = d.flags_of(definition, ["other", "mine"])
    assert flags == ["invisible characters", "names tools of other"]
    assert d.flags_of({"name": "t", "description": "Plain.", "inputSchema": OBJECT}, ["t"]) == []
    deep = nested(900)
    assert d.visible_schema(deep) == deep
    assert d.flags_of({"inputSchema": deep}, ["other"]) == []


@given(st.text())
def test_what_nobody_sees_is_taken_out(text):
    shown = d.visible_text(text)
    assert d.visible_text(shown) == shown
    assert not re.search(
        "[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]", shown
    )
    assert json.loads(json.dumps(shown)) == shown
