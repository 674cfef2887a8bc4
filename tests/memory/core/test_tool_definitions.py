"""Our tools are offered whole, and leave the client's names to it."""

from __future__ import annotations

import json

import pytest

from memory.core.tool_definitions import (
    ALL,
    READ_ONLY,
    TOKENS,
    UNNAMED,
    as_json,
    client_names,
    measured_tokens,
    text_of,
    tools_to_offer,
)
from tests.vocabulary import count_tokens


@pytest.mark.parametrize(
    ("write", "named", "offered"),
    [(True, True, ALL), (True, False, UNNAMED), (False, True, READ_ONLY)],
)
def test_what_is_offered_depends_on_who_may_write(write, named, offered):
    assert tools_to_offer(None, write=write, named=named) is offered
    assert json.loads(text_of(offered)) == offered
    assert [json.loads(bytes(t)) for t in as_json(offered)] == offered


def test_a_name_that_the_client_uses_is_its_own():
    name = ALL[0]["function"]["name"]
    offered = tools_to_offer([{"function": {"name": name}}], write=True)
    assert offered == ALL[1:]
    assert json.loads(text_of(offered)) == offered


def test_names_are_read_of_tools_of_any_shape():
    tools = [{"function": {"name": "a"}}, {"custom": {"name": "b"}}, {"name": "c"}, 3, {}]
    assert client_names(tools) == {"a", "b", "c", "None"}
    assert client_names({"not": "a list"}) == set()


def test_the_tokens_of_our_tools_are_as_measured():
    for tool in ALL:
        counted = count_tokens(json.dumps(tool, separators=(",", ":")))
        assert TOKENS[tool["function"]["name"]] == counted
    for offered in (ALL, UNNAMED, READ_ONLY):
        counted = count_tokens(text_of(offered))
        assert 0 <= measured_tokens(offered) - counted <= len(offered)
