"""Claude's export: talk, attachments, branches, and what Claude noted."""

from __future__ import annotations

import pytest

from memory.export_format import MessageLine, NodeLine
from memory.formats.claude import read
from memory.formats.records import BrokenItem
from tests.memory.formats.shapes import claude_chat, claude_message, uuid

NONE = "00000000-0000-4000-8000-000000000000"


def said(bundle):
    return [line.message["content"] for line in bundle.lines if isinstance(line, MessageLine)]


def test_messages_keep_their_ids_times_and_owner():
    chat = claude_chat([claude_message(1, "human", "Hi"), claude_message(2, "assistant", "Hello")])
    (bundle,) = read(chat)
    first = next(line for line in bundle.lines if isinstance(line, MessageLine))
    assert (bundle.owner, first.id) == ("ann", f"msg_{uuid(1).replace('-', '')}")
    assert first.created_at == "2026-03-01T10:00:01.000Z"
    assert said(bundle) == ["Hi", "Hello"]


def test_tools_and_thoughts_are_left_out_and_attached_text_is_there():
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "name": "web", "input": {}},
        {"type": "tool_result", "content": []},
        {"type": "text", "text": "Read it."},
    ]
    chat = claude_chat(
        [
            claude_message(1, "human", "See", attachments=[{"extracted_content": "the paper"}]),
            claude_message(2, "assistant", "", content=blocks),
            claude_message(3, "human", "old", content=None),
        ]
    )
    assert said(next(read(chat))) == ["See\n\nthe paper", "Read it.", "old"]


def test_an_edited_message_is_a_branch():
    chat = claude_chat(
        [
            claude_message(1, "human", "q", parent_message_uuid=NONE),
            claude_message(2, "assistant", "a", parent_message_uuid=uuid(1)),
            claude_message(3, "human", "more", parent_message_uuid=uuid(2)),
            claude_message(4, "assistant", "so", parent_message_uuid=uuid(3)),
            claude_message(5, "human", "other", parent_message_uuid=uuid(2)),
            claude_message(6, "assistant", "then", parent_message_uuid=uuid(5)),
        ]
    )
    (bundle,) = read(chat)
    assert said(bundle) == ["q", "a", "other", "then", "more", "so"]
    parents = {line.id: line.parent for line in bundle.lines if isinstance(line, NodeLine)}
    assert parents == {"1": None, "2": "1", "3": "1"}


def test_messages_without_ids_follow_one_another():
    said_of = [("human", "q"), ("assistant", "a"), ("human", "more"), ("assistant", "so")]
    chat = claude_chat([{"sender": sender, "text": text} for sender, text in said_of])
    (bundle,) = read(chat)
    parents = [line.parent for line in bundle.lines if isinstance(line, NodeLine)]
    assert parents[0] is None
    assert None not in parents[1:]


def test_what_claude_noted_becomes_passages():
    value = {
        "account_uuid": "ann",
        "conversations_memory": "Works on trains.",
        "project_memories": {uuid(1): "The book has ten chapters.", uuid(2): 7},
    }
    (bundle,) = read(value)
    assert [(p.content, p.tags) for p in bundle.lines] == [
        ("Works on trains.", ["claude"]),
        ("The book has ten chapters.", ["claude", "project"]),
    ]
    assert list(read({"conversations_memory": ""})) == []


@pytest.mark.parametrize("value", [None, [], {}, {"chat_messages": {}}])
def test_what_is_no_conversation_is_told(value):
    with pytest.raises(BrokenItem, match="chat_messages"):
        list(read(value))


def test_messages_of_any_shape_are_passed_over():
    assert list(read(claude_chat([None, 3, {}, {"sender": "human"}, {"uuid": 7}]))) == []
