"""What events tell of their part."""

from __future__ import annotations

import json

import pytest

from gateway.wire.answer_parts import PartKey
from gateway.wire.part_keys import (
    CALL,
    TOOL_USE,
    item_key,
    messages_key,
    readable_event,
    readable_item,
    readable_message,
    readable_response,
    responses_key,
)

EVENTS = [
    ({"type": "response.output_text.delta", "item_id": "m"}, (None, ("m",), "message", "")),
    ({"type": "response.refusal.delta", "output_index": 2}, (2, (), "message", "")),
    (
        {"type": "response.function_call_arguments.done", "item_id": 7, "name": "f"},
        (None, ("7",), CALL, "f"),
    ),
    ({"type": "response.reasoning_summary_text.delta"}, (None, (), "reasoning", "")),
    (
        {"type": "response.content_part.added", "part": {"type": "reasoning_text"}},
        (None, (), "reasoning", ""),
    ),
    ({"type": "response.content_part.added", "part": {"type": "odd"}}, (None, (), "", "")),
    ({"type": "response.web_search_call.searching"}, (None, (), "web_search_call", "")),
    ({"type": "response.odd"}, (None, (), "", "")),
    (
        {"type": "response.output_item.added", "output_index": True, "item": {"id": "i"}},
        (None, ("i",), "", ""),
    ),
]


@pytest.mark.parametrize(("event", "expected"), EVENTS)
def test_events_of_responses(event, expected):
    assert responses_key(event) == PartKey(*expected)


def test_an_item_has_two_ids():
    item = {"type": CALL, "id": "fc", "call_id": "c", "name": "f"}
    assert item_key(item, 3) == PartKey(3, ("fc", "c"), CALL, "f")
    assert item_key({"type": 7, "name": 7, "id": " "}) == PartKey(None)


def test_events_of_messages():
    begins = {"index": 1, "content_block": {"type": "mcp_tool_use"}}
    assert messages_key(begins) == PartKey(1, (), TOOL_USE)
    grows = {"index": None, "delta": {"type": "thinking_delta"}}
    assert messages_key(grows) == PartKey(None, (), "thinking")
    assert messages_key({"type": "content_block_stop"}) == PartKey(None)


def test_arguments_are_a_text_and_an_input_an_object_however_they_came():
    call = {"type": "function_call", "name": "f", "arguments": {"q": "x"}}
    read = readable_response({"output": [call]})["output"][0]
    assert json.loads(read["arguments"]) == {"q": "x"}
    assert readable_event({"item": call})["item"] == read
    assert readable_item(read) is read
    for text, value in [('{"q": "x"}', {"q": "x"}), ("", {}), ("{", "{"), ("[1]", "[1]")]:
        block = {"type": "tool_use", "name": "f", "input": text}
        assert readable_message({"content": [block]})["content"][0]["input"] == value
