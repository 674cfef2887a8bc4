"""A stream that was cut does not look whole, and is ended as its clients expect."""

from __future__ import annotations

import json

import pytest

from gateway.errors import UpstreamUnreachable
from gateway.wire.sse import SseFramer
from gateway.wire.stream_endings import StreamEnding, ending_of, error_of, is_object, told_error

FAULT = UpstreamUnreachable("the model server is gone")


def see(ending, *events):
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        for read in SseFramer().feed(f"data: {data}\n\n".encode()):
            ending.see(read)
    return ending


def finish(index=None, reason="stop", **more):
    lane = {} if index is None else {"index": index}
    return {"choices": [{**lane, "finish_reason": reason}], **more}


@pytest.mark.parametrize(
    ("events", "whole"),
    [
        ([finish(reason=None)], False),
        ([finish()], True),
        (["[DONE]"], True),
        ([{"error": {"message": "x"}}], True),
        (["no json", "[1]", {"choices": 3, "error": None}], False),
        (["[DONE]", finish(reason=None)], True),
    ],
)
def test_a_chat_stream_is_whole_after_its_finish_or_error(events, whole):
    assert see(ending_of("/chat/completions?x"), *events).is_complete is whole


def test_a_stream_of_several_choices_is_whole_when_each_is():
    ending = see(ending_of("/completions", several=True), finish(0, None), finish(1))
    assert not ending.ended
    assert see(ending, finish(0)).ended


def test_a_comment_ends_nothing():
    ending = ending_of("/chat/completions")
    for event in SseFramer().feed(b": keep-alive\n\n"):
        ending.see(event)
        ending_of("/responses").see(event)
        ending_of("/messages").see(event)
    assert not ending.is_complete


@pytest.mark.parametrize(
    ("path", "data", "whole"),
    [
        ("/responses", {"type": "response.output_text.delta"}, False),
        ("/responses", {"type": "response.completed", "response": {}}, True),
        ("/responses", {"type": "error"}, True),
        ("/responses", {"text": "response.completed"}, False),
        ("/responses", {"text": "x", "of": "response.completed"}, False),
        ("/responses", "[DONE]", False),
        ("/messages", {"type": "content_block_delta"}, False),
        ("/messages", {"type": "message_stop"}, True),
        ("/messages", {"type": "error", "error": {}}, True),
        ("/messages", {"text": "message_stop"}, False),
    ],
)
def test_other_formats_are_whole_after_their_last_event(path, data, whole):
    assert see(ending_of(path), data).is_complete is whole


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], {"object": "response"}),
        ([{"response": 3}], {"object": "response"}),
        ([{"type": "response.created", "response": {"id": "r"}}], {"id": "r"}),
    ],
)
def test_a_cut_response_ends_as_a_failed_one(before, expected):
    lines = see(ending_of("/responses"), *before).error_event(FAULT).split(b"\n")
    event = json.loads(lines[1].removeprefix(b"data: "))
    assert lines[0] == b"event: response.failed"
    assert event["sequence_number"] == len(before)
    assert event["response"] == {**expected, "status": "failed", "error": event["error"]}


def test_a_cut_message_ends_as_an_error_of_anthropics():
    event = ending_of("/messages").error_event(FAULT)
    assert event.startswith(b"event: error\ndata: ")
    assert json.loads(event.split(b"data: ")[1])["error"]["type"] == "api_error"


def test_a_format_without_a_rule_ends_where_it_ends():
    ending = see(ending_of("/audio/speech/"), "x")
    assert type(ending) is StreamEnding
    assert ending.is_complete
    assert not ending.ended
    assert b"the model server is gone" in ending.error_event(FAULT)


def test_an_event_reports_its_error_at_the_top():
    assert error_of(b'{"error": 3}') == 3
    assert error_of(b'{"x": 1}') is error_of(b'"error"') is error_of(b'{"error"') is None
    assert is_object(b'{"x": 1}')
    assert not is_object(b"[1]")


@pytest.mark.parametrize("error", ["boom", {"message": "boom", "code": 5}, {"message": None}, [1]])
def test_an_error_of_any_shape_is_told_as_sdks_read_it(error):
    told = told_error(error)
    assert isinstance(told["message"], str)
    assert told["message"]
    is_readable = isinstance(error, dict) and bool(error["message"])
    assert (told is error) is is_readable
