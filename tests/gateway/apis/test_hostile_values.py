"""A value of any type in any place of a request or an answer: nothing fails but as the gateway says
so itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.apis.envelope import EnvelopeMask
from gateway.apis.messages.messages_format import MessagesFormat
from gateway.apis.messages.messages_reply import MessagesMask
from gateway.apis.responses.responses_format import ResponsesFormat
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.apis.translation.request_to_chat import MESSAGES, RESPONSES, carry
from gateway.errors import GatewayError
from gateway.wire.losses import Losses
from tests.e2e.mutations import wrong
from tests.odd_streams.answers import OURS

Json = dict[str, Any]
JUNK: list[Any] = [None, True, 7, "", "x", [], {}, [None], [[]], {"type": []}]
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
RESPONSES_REQUEST: Json = {
    "model": "m",
    "instructions": "Be kind",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "b", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "d"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
    "reasoning": {"effort": "low"},
}
WORDS = {"type": "text", "text": "a"}
MESSAGES_REQUEST: Json = {
    "model": "m",
    "max_tokens": 50,
    "system": [{"type": "text", "text": "Be kind"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [WORDS]},
                {"type": "image", "source": {"type": "url", "url": "https://x"}},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
}
CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": OURS[0], "arguments": "{}"}
MESSAGE = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}
ENDING = {"id": "r", "status": "completed", "output": [MESSAGE, CALL], "usage": {"input_tokens": 1}}
RESPONSES_EVENTS: list[Json] = [
    {"type": "response.created", "response": {"id": "r", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "item_id": "msg", "delta": "hi"},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 1, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    {"type": "response.completed", "response": ENDING},
]
USE = {"type": "tool_use", "id": "c", "name": OURS[0], "input": {}}
MESSAGES_EVENTS: list[Json] = [
    {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": USE},
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": "{}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    ("name", "form", "request_body"),
    [
        (RESPONSES, ResponsesFormat(), RESPONSES_REQUEST),
        (MESSAGES, MessagesFormat(), MESSAGES_REQUEST),
    ],
)
def test_a_request_with_a_wrong_value_is_read_or_refused(name, form, request_body):
    losses = ("messages.thinking", "input.reasoning", "thinking")
    assert carry(name, request_body, Losses("up", losses), "max").body["messages"]
    for _, body in wrong(request_body, JUNK):
        if isinstance(body, dict):
            with contextlib.suppress(GatewayError):
                form.facts(body)
            with contextlib.suppress(GatewayError):
                carry(name, body, Losses("up", losses), "max")


def responses_mask(owned: Sequence[str]) -> EnvelopeMask:
    return ResponsesMask(owned, None, Echo(frozenset(owned)))


def messages_mask(owned: Sequence[str]) -> EnvelopeMask:
    return MessagesMask(owned, None)


@pytest.mark.parametrize("owned", [OURS, ()])
@pytest.mark.parametrize(
    ("make_mask", "answer_events"),
    [(responses_mask, RESPONSES_EVENTS), (messages_mask, MESSAGES_EVENTS)],
)
def test_a_stream_with_a_wrong_value_is_shown_or_breaks_off(make_mask, answer_events, owned):
    for place, event in enumerate(answer_events):
        for _, found in wrong(event, JUNK):
            if not isinstance(found, dict):
                continue
            mask = make_mask(owned)
            with contextlib.suppress(GatewayError):
                for told in [*answer_events[:place], found, *answer_events[place + 1 :]]:
                    mask.take(told, b"")
                mask.close()
                mask.finish()
                mask.end(None)
            mask.answers()
