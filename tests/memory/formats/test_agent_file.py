"""Agents in `.af` files: names that they may have here, and files of any shape."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.formats.agent_file import agent_name, read
from memory.formats.records import BrokenItem

GOOD = re.compile(r"(?!agent[_-])[a-z0-9][a-z0-9._-]{0,63}")


@given(st.text(max_size=100))
def test_every_title_gives_a_name_that_an_agent_may_have(title):
    assert GOOD.fullmatch(agent_name(title))


@pytest.mark.parametrize("title", ["agent-1234", "agent_ff", "Agent 1", "", "..", "x" * 99, "é"])
def test_a_name_never_looks_like_an_id(title):
    assert GOOD.fullmatch(agent_name(title))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    """
    name system tags metadata messages passages block_ids memory_blocks tool_ids tool_rules
    llm_config context_window_limit response_format
    """.split()  # noqa: SIM905
)


@given(st.lists(st.dictionaries(MEMBERS, JSON), max_size=3), JSON)
def test_no_file_is_too_odd(agents, blocks):
    found = read({"agents": agents, "blocks": blocks})
    assert len(found) == len(agents)
    assert all(GOOD.fullmatch(agent.name) for agent in found)


def test_what_is_no_agent_file_is_refused():
    with pytest.raises(BrokenItem):
        read({"x": 1})


def test_what_a_file_says_of_model_tools_and_limits_is_read_once_for_all_importers():
    agent = {
        "name": "Sam",
        "llm_config": {"handle": "openai/m", "model": "m"},
        "tool_ids": ["t1", "t2", "t9", 3],
        "tool_rules": [{"tool_name": "a", "type": "exit_loop"}, "x"],
        "context_window_limit": 9000,
        "response_format": {"type": "json_object"},
        "include_base_tools": False,
    }
    tools = [{"id": "t1", "name": "a"}, {"id": "t2", "name": "b"}, {"id": "t3", "name": "c"}, None]
    (found,) = read({"agents": [agent], "tools": tools})
    assert (found.handle, found.tools, found.rules) == (
        "openai/m",
        ["a", "b"],
        agent["tool_rules"][:1],
    )
    settings = {"context_window": 9000, "response_format": {"type": "json_object"}}
    assert found.profile.items() >= {**settings, "memory_tools": False}.items()
    odd = {**agent, "context_window_limit": True, "response_format": {"type": "xml"}}
    (found,) = read({"agents": [odd]})
    assert not {"context_window", "response_format"} & found.profile.keys()
