"""Parameters of a profile in the members of each format: the request's own win, unless locked."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.profile_members import PLACES, ProfileMembers, with_profile

SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
VALUES = {
    "temperature": 0.25,
    "top_p": 0.5,
    "max_output_tokens": 321,
    "reasoning_effort": "low",
    "seed": 7,
    "stop": "END",
    "parallel_tool_calls": False,
    "response_format": SCHEMA,
}
TOOLS = {"tools": [{"name": "f"}]}
SENT = {
    "chat": {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 321,
        "reasoning_effort": "low",
        "seed": 7,
        "stop": "END",
        "parallel_tool_calls": False,
        "response_format": SCHEMA,
    },
    "responses": {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output_tokens": 321,
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    },
    "messages": {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 321,
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        "stop_sequences": ["END"],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
}
# What a request says itself, by format and parameter: another value, in its own members.
OWN = {
    "chat": {
        "temperature": {"temperature": 1},
        "max_output_tokens": {"max_completion_tokens": 5},
        "response_format": {"response_format": {"type": "text"}},
        "stop": {"stop": ["X"]},
        "seed": {"seed": 0},
    },
    "responses": {
        "temperature": {"temperature": 1},
        "max_output_tokens": {"max_output_tokens": 20},
        "reasoning_effort": {"reasoning": {"effort": "high", "summary": "auto"}},
        "response_format": {"text": {"format": {"type": "text"}, "verbosity": "low"}},
    },
    "messages": {
        "temperature": {"temperature": 1},
        "max_output_tokens": {"max_tokens": 5},
        "reasoning_effort": {"output_config": {"effort": "high"}},
        "parallel_tool_calls": {"tool_choice": {"type": "any", "disable_parallel_tool_use": False}},
    },
}
CASES = [(wire, name) for wire, own in OWN.items() for name in own]


@pytest.mark.parametrize("wire", list(SENT))
def test_a_request_that_says_nothing_gets_all_of_them(wire):
    body = {"model": "m", **TOOLS}
    found, dropped = with_profile(wire, body, ProfileMembers(VALUES), "gpt-4o-mini")
    assert found == {**body, **SENT[wire]}
    assert (dropped, body) == ([], {"model": "m", **TOOLS})


@pytest.mark.parametrize(("wire", "name"), CASES)
def test_a_request_has_its_way_and_what_is_locked_has_not(wire, name):
    own = OWN[wire][name]
    body = {"model": "m", **TOOLS, **copy.deepcopy(own)}
    found, dropped = with_profile(wire, body, ProfileMembers(VALUES), "m")
    for member, value in own.items():
        kept = found[member]
        assert value.items() <= kept.items() if isinstance(value, dict) else kept == value
    assert dropped == []
    locked, dropped = with_profile(wire, body, ProfileMembers(VALUES, (name,)), "m")
    whole, _ = with_profile(wire, {"model": "m", **TOOLS}, ProfileMembers(VALUES), "m")
    place = PLACES[wire][name]
    for path in (place.path, *((alias,) for alias in place.aliases)):
        assert get(locked, path) == get(whole, path)
    assert len(dropped) == 1
    assert body == {"model": "m", **TOOLS, **own}
    # What the profile does not say, nobody may say; but a message must have a limit.
    without, dropped = with_profile(wire, body, ProfileMembers({}, (name,)), "m")
    needed = wire == "messages" and name == "max_output_tokens"
    assert (get(without, place.path) is None) is not needed
    assert bool(dropped) is not needed


def get(body, path):
    for name in path:
        body = (body or {}).get(name)
    return body


def test_a_value_that_is_the_profiles_own_gives_no_way():
    sent = {"temperature": 0.25, "seed": None}
    members = ProfileMembers(VALUES, ("temperature", "seed"))
    found, dropped = with_profile("chat", sent, members, "m")
    assert (found["temperature"], found["seed"], dropped) == (0.25, 7, [])


def test_the_limit_has_the_name_that_the_models_server_takes():
    for model, member in (("gpt-5", "max_completion_tokens"), ("gpt-4o", "max_tokens")):
        found, _ = with_profile("chat", {}, ProfileMembers({"max_output_tokens": 9}), model)
        assert found == {member: 9}


def test_parallel_calls_are_not_spoken_of_where_there_are_no_tools():
    for wire in PLACES:
        members = ProfileMembers({"parallel_tool_calls": False}, tools=False)
        assert with_profile(wire, {}, members) == ({}, [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NAMES = sorted({m for wire in SENT.values() for m in wire} | {"max_completion_tokens"})


@given(
    st.sampled_from(list(PLACES)),
    st.dictionaries(st.sampled_from(NAMES), JSON),
    st.sets(st.sampled_from(list(VALUES))),
)
def test_no_body_of_any_shape_is_too_odd(wire, body, locked):
    before = copy.deepcopy(body)
    found, dropped = with_profile(wire, body, ProfileMembers(VALUES, tuple(locked)), "m")
    assert body == before
    assert all(name in found for name in body if name.partition(".")[0] not in NAMES)
    again, more = with_profile(wire, found, ProfileMembers(VALUES, tuple(locked)), "m")
    assert (again, more) == (found, [])
    assert len(dropped) == len(set(dropped))
