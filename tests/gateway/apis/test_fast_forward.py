"""Pieces of text that are passed on by their bytes come to the same as those that are read."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.apis.messages.messages_reply import MessagesMask
from gateway.apis.responses.responses_reply import Echo, ResponsesMask
from gateway.errors import StreamIncomplete
from gateway.wire.sse import SseFramer
from memory.core.tool_definitions import OURS
from tests.wire_models import MessagesModel, ResponsesModel, say, think, use

SCRIPTS = [[say("It rains in Oslo.")], [think(), use("core_memory_append"), say("Noted, so.")]]
MODELS = {"responses": ResponsesModel, "messages": MessagesModel}
BODY = {"model": "m", "input": "x", "messages": []}
TEXT = {
    "responses": {
        "type": "response.output_text.delta",
        "output_index": 0,
        "content_index": 0,
        "item_id": "msg_1",
        "delta": "Hi",
        "sequence_number": 4,
    },
    "messages": {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "Hi"},
    },
}
# Changes to a piece of text, after which it has to be read.
OTHER = {
    "responses": [
        {"sequence_number": 9},
        {"sequence_number": True},
        {"output_index": 1},
        {"delta": None},
        {"type": "response.refusal.delta"},
        {"error": {"message": "no"}},
        {"item": {"id": "x"}},
    ],
    "messages": [
        {"index": 1},
        {"index": True},
        {"delta": {"type": "text_delta"}},
        {"delta": {"type": "thinking_delta", "thinking": "Hm", "text": '"text_delta"'}},
        {"delta": {"type": "odd", "text": '"text_delta"'}},
        {"type": "content_block_stop"},
    ],
}


def mask(name):
    if name == "messages":
        return MessagesMask(OURS, None)
    return ResponsesMask(OURS, None, Echo(frozenset(OURS)))


def written(event):
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def shown(into, raw, *, fast):
    """What a mask shows of an event, and whether it had to be read."""
    if fast and (out := into.fast_forward(raw)):
        return out, False
    (event,) = SseFramer().feed(raw)

    async def show():
        return await into.show(event)

    return asyncio.run(show()), True


def begun(name):
    """The events before the first piece of text."""
    model = MODELS[name]()
    events = list(model.events(model.reply([say("x")], BODY)))
    at = next(i for i, e in enumerate(events) if e["type"] == TEXT[name]["type"])
    return events[:at]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_whole_stream_comes_to_the_same(name, script):
    model = MODELS[name]()
    events = [written(e) for e in model.events(model.reply(script, BODY))]
    one, other = mask(name), mask(name)
    told = [shown(one, raw, fast=True) for raw in events]
    assert [out for out, _ in told] == [shown(other, raw, fast=False)[0] for raw in events]
    assert one.close()[1] == other.close()[1]
    fast = sum(not read for _, read in told)
    assert fast >= 3 if len(script) == 1 else True


@pytest.mark.parametrize(("name", "change"), [(n, c) for n in OTHER for c in OTHER[n]])
def test_what_is_no_plain_piece_of_text_is_read(name, change):
    raw = written({**TEXT[name], **change})
    into = mask(name)
    for event in begun(name):
        shown(into, written(event), fast=False)
    assert into.fast_forward(raw) == b""


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw.replace(b"\n\n", b"\r\n\r\n"),
        lambda raw: raw + raw,
        lambda raw: raw[:-1],
        lambda raw: raw.replace(b"Hi", b"H\\ud800"),
        lambda raw: raw.replace(b"Hi", b"x" * 20_000),
        lambda raw: raw.replace(b"event", b"id: 1\nevent"),
        lambda raw: raw.replace(b"data: {", b"data: {{"),
    ],
)
def test_other_bytes_are_read(name, spoil):
    into = mask(name)
    for event in begun(name):
        shown(into, written(event), fast=False)
    assert into.fast_forward(spoil(written(TEXT[name]))) == b""


@pytest.mark.parametrize("name", MODELS)
def test_a_piece_before_anything_has_begun_is_read(name):
    into = mask(name)
    assert into.fast_forward(written(TEXT[name])) == b""
    with pytest.raises(StreamIncomplete):
        shown(into, written({**TEXT[name], "index": -1, "output_index": -1}), fast=True)
