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
    ["name", "system", "tags", "metadata", "messages", "passages", "block_ids", "memory_blocks"]
)


@given(st.lists(st.dictionaries(MEMBERS, JSON), max_size=3), JSON)
def test_no_file_is_too_odd(agents, blocks):
    found = read({"agents": agents, "blocks": blocks})
    assert len(found) == len(agents)
    assert all(GOOD.fullmatch(agent.name) for agent in found)


def test_what_is_no_agent_file_is_refused():
    with pytest.raises(BrokenItem):
        read({"x": 1})
