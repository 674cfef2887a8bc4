"""ChatGPT's export: what was said is there, in order, and nothing else."""

from __future__ import annotations

import pytest

from memory.export_format import MessageLine
from memory.formats.chatgpt import read
from memory.formats.records import BrokenItem
from tests.memory.formats.shapes import AT, chat_of, gpt, gpt_node, uuid


def said(value):
    (bundle,) = read(value)
    return [
        (line.message["role"], line.message["content"])
        for line in bundle.lines
        if isinstance(line, MessageLine)
    ]


def test_a_conversation_has_its_name_times_and_messages():
    (bundle,) = read(chat_of(5))
    head, _, first, _ = bundle.lines
    assert (head.id, head.created_at) == (f"chatgpt:{uuid(5)}", "2023-11-14T22:13:20.000Z")
    assert first.created_at == "2023-11-14T22:13:22.000Z"
    assert said(chat_of(5)) == [("user", "user 5.0"), ("assistant", "assistant 5.1")]


def test_instructions_tools_thoughts_and_what_is_hidden_are_left_out():
    nodes = [
        gpt_node("s", None, "system", ""),
        gpt_node("u", "s", "user", "What is new?"),
        gpt_node("c", "u", "assistant", "search('new')", recipient="web"),
        gpt_node("t", "c", "tool", "a long page"),
        gpt_node("h", "t", "assistant", "hm", content_type="thoughts"),
        gpt_node("x", "h", "user", "x", metadata={"is_visually_hidden_from_conversation": True}),
        gpt_node("a", "x", "assistant", "Nothing."),
    ]
    assert said(gpt(nodes, "a")) == [("user", "What is new?"), ("assistant", "Nothing.")]


def test_pictures_are_named_and_speech_is_text():
    parts = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f"},
        {"content_type": "audio_transcription", "text": "What is this?"},
    ]
    node = gpt_node("u", None, "user", parts, content_type="multimodal_text")
    assert said(gpt([node], "u")) == [("user", "[image]\nWhat is this?")]


def test_without_a_known_end_the_newest_message_is_it():
    nodes = [
        gpt_node("u", None, "user", "q"),
        gpt_node("old", "u", "assistant", "old", create_time=AT),
        gpt_node("new", "u", "assistant", "new", create_time=AT + 9),
    ]
    for current in (None, "gone"):
        assert said(gpt(nodes, current))[:2] == [("user", "q"), ("assistant", "new")]


def test_a_circle_of_messages_ends():
    nodes = [gpt_node("a", "b", "user", "1"), gpt_node("b", "a", "assistant", "2")]
    assert sorted(said(gpt(nodes, "a"))) == [("assistant", "2"), ("user", "1")]


@pytest.mark.parametrize("value", [7, {}, {"mapping": []}, {"mapping": None}])
def test_what_is_no_conversation_is_told(value):
    with pytest.raises(BrokenItem, match="mapping"):
        list(read(value))


@pytest.mark.parametrize("node", [None, 7, {}, {"message": 3}, {"message": {"author": []}}])
def test_a_node_of_any_shape_is_passed_over(node):
    value = chat_of(1)
    value["mapping"]["odd"] = node
    assert len(said(value)) == 2
