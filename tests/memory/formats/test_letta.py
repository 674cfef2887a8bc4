"""Letta's agent files: blocks, passages and messages, of today's shape and the first."""

from __future__ import annotations

import json

import pytest

from memory.export_format import SAID, BlockLine, MessageLine, PassageLine
from memory.formats.letta import read
from memory.formats.records import BrokenItem, Bundle


def block(label="human", value="Name: Chad", **more):
    return {"id": f"block-{label}", "label": label, "value": value, "limit": 20_000, **more}


def message(role, text, **more):
    content = [{"type": "text", "text": text}]
    return {"id": "message-0", "role": role, "content": content, **more}


def agent(name="sam", **more):
    at = {"created_at": "2025-10-31T22:56:56+00:00"}
    said = [message("system", "You are Sam."), message("user", "Hi", **at)]
    return {"name": name, "block_ids": ["block-human"], "messages": said, **more}


def lines(value):
    return [line for bundle in read(value) for line in bundle.lines]


def said(value):
    return [line.message["content"] for line in lines(value) if isinstance(line, MessageLine)]


def test_an_agent_brings_blocks_passages_and_messages():
    value = {"agents": [agent()], "blocks": [block()], "passages": [{"text": "Likes tea"}]}
    found = lines(value)
    (human,) = (x for x in found if isinstance(x, BlockLine))
    assert (human.label, human.value, human.limit) == ("human", "Name: Chad", 20_000)
    assert [x.content for x in found if isinstance(x, PassageLine)] == ["Likes tea"]
    assert said(value) == ["Hi"]
    assert {x.agent for x in found} == {"default"}
    assert lines(value) == found


def test_several_agents_stay_apart():
    value = {"agents": [agent("sam"), agent("ann", block_ids=[])], "blocks": [block()]}
    assert {x.agent for x in lines(value)} == {"sam", "ann"}


def test_the_first_version_of_the_format_is_read():
    call = {"function": {"name": "send_message", "arguments": json.dumps({"message": "Hello!"})}}
    other = {"function": {"name": "core_memory_append", "arguments": "{"}}
    value = {
        "name": "old",
        "core_memory": [block()],
        "messages": [
            {"role": "user", "text": json.dumps({"type": "user_message", "message": "Hi"})},
            {"role": "user", "text": json.dumps({"type": "heartbeat"})},
            {"role": "assistant", "text": "thinking", "tool_calls": [call]},
            {"role": "assistant", "text": "", "tool_calls": [other, 7]},
            {"role": "tool", "text": "ok"},
            {"role": "user", "text": "{not json"},
        ],
    }
    assert said(value) == ["Hi", "Hello!", "{not json"]


def test_a_block_is_made_to_fit():
    value = {"agents": [agent(block_ids=[], memory_blocks=[block("My Notes", "x" * 50, limit=3)])]}
    found = next(x for x in lines(value) if isinstance(x, BlockLine))
    assert (found.label, found.limit) == ("my_notes", 50)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "agent file"),
        ([], "agent file"),
    ],
)
def test_what_cannot_be_brought_along_is_told(value, why):
    with pytest.raises(BrokenItem, match=why):
        list(read(value))


def test_odd_and_repeated_labels_get_names_of_their_own():
    blocks = [
        block("A-b", "one"),
        block("a b", "two"),
        block("a b", "two"),
        block("1", "x"),
        block("\u540d", "y"),
        block("old", "z"),
        block("a_b_2", "three"),
        block("a_b", "four"),
        block("n" * 90, "five"),
        block("n" * 80, "six"),
    ]
    value = {"agents": [agent(block_ids=[], memory_blocks=blocks)]}
    found = {x.label: x.value for x in lines(value) if isinstance(x, BlockLine)}
    assert found == {
        "a_b": "one",
        "a_b_2": "two",
        "block_1": "x",
        "block": "y",
        "block_old": "z",
        "a_b_2_2": "three",
        "a_b_3": "four",
        "n" * 63: "five",
        "n" * 56 + "_2": "six",
    }


def test_what_is_too_long_is_told_and_the_rest_is_brought_along():
    long = [block("long", "x" * 1_000_001), block("human", "Name: Chad")]
    passages = [{"text": "x" * 200_001}, {"text": "Likes tea"}]
    told = agent(block_ids=[], memory_blocks=long, passages=passages)
    found = list(read({"agents": [told]}))
    assert [str(x).partition(" characters")[0] for x in found if isinstance(x, BrokenItem)] == [
        "the block long has 1000001",
        "a memory has 200001",
    ]
    kept = [x for bundle in found if isinstance(bundle, Bundle) for x in bundle.lines]
    assert [x.value for x in kept if isinstance(x, BlockLine)] == ["Name: Chad"]
    assert [x.content for x in kept if isinstance(x, PassageLine)] == ["Likes tea"]
    assert [x.message["content"] for x in kept if isinstance(x, MessageLine)] == ["Hi"]


def test_a_message_that_is_too_long_leaves_out_the_conversation_alone():
    talk = agent(messages=[message("assistant", "x" * (SAID + 1))])
    found = list(read({"agents": [talk], "blocks": [block()]}))
    assert sorted(type(x).__name__ for x in found) == ["BrokenItem", "Bundle"]


def test_members_of_any_shape_are_passed_over():
    assert lines({"agents": [None, {"messages": [None, 3, {}]}, 7]}) == []
