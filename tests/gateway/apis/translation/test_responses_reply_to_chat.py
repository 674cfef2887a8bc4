"""An answer of the Responses API, as a chat completion."""

from __future__ import annotations

import json

import pytest

from gateway.apis.translation.responses_reply_to_chat import StreamedResponse, completion_of
from gateway.wire.chat import MalformedReply, fold
from tests.wire_models import ResponsesModel, native, say, think, use

HEAD = {"id": "resp_1", "model": "m", "created_at": 7}
CREATED = {"type": "response.created", "response": HEAD}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** x"}


def stream(*events, usage=True, thoughts=0):
    """The chunks of a stream, and whether it came to its end."""
    reader = StreamedResponse(thoughts, usage, lambda data: len(data) < 5000)
    raw = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    out = reader.feed(raw) + reader.end()
    assert reader.waiting == 0
    found = [x.removeprefix(b"data: ") for x in out.split(b"\n\n") if x]
    return [json.loads(x) for x in found if x != b"[DONE]"], found[-1:] == [b"[DONE]"]


def message_of(*events, **more):
    chunks, ended = stream(*events, **more)
    assert ended
    return fold(chunks)["choices"][0]


def completed(*items, **more):
    response = {**HEAD, "status": "completed", "output": list(items), **more}
    return {"type": "response.completed", "response": response}


@pytest.mark.parametrize(
    "script",
    [
        [say("Yes, it rains.")],
        [think("Hm."), say("Yes.")],
        [think(), use("a", {"x": 1}), use("b")],
        [native(CUSTOM)],
        [say("One."), say("Two.")],
    ],
)
def test_a_stream_adds_up_to_what_the_whole_answer_says(script):
    model = ResponsesModel()
    reply = model.reply(script, {"model": "m", "input": "Hi"})
    whole = json.loads(completion_of(json.dumps(reply).encode()))
    events = list(model.events(reply))
    assert fold(stream(*events)[0]) | {"object": "chat.completion"} == whole
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 40}
    raw = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    reader, bare = StreamedResponse(0, True, bool), StreamedResponse(0, True, bool)
    pieces = b"".join(reader.feed(raw[i : i + 7]) for i in range(0, len(raw), 7))
    assert pieces + reader.end() == bare.feed(raw)


def test_what_was_never_told_in_pieces_is_told_from_the_items():
    thought = {"type": "reasoning", "summary": [], "content": [{"text": "Hm."}]}
    said = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}, {}]}
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    call = {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"}
    other = {"type": "web_search_call"}
    choice = message_of(CREATED, completed(thought, said, refused, call, other))
    assert choice["message"] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hm.",
        "refusal": "No.",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}}
        ],
    }
    assert choice["finish_reason"] == "tool_calls"


def test_a_call_whose_arguments_come_with_its_end_is_told_once():
    begun = {"type": "function_call", "call_id": "c", "name": "a", "arguments": ""}
    whole = {**begun, "arguments": '{"x": 1}'}
    where = {"output_index": 0}
    done = {"type": "response.output_item.done", **where, "item": whole}
    late = {"type": "response.function_call_arguments.delta", **where, "delta": "late"}
    added = {"type": "response.output_item.added", **where, "item": begun}
    choice = message_of(CREATED, late, added, added, done, done, late, completed(whole))
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"x": 1}'


def test_the_parts_of_a_summary_are_paragraphs():
    kind = "response.reasoning_summary_text.delta"
    told = [(0, "a"), (0, "b"), (1, "c"), (1, "")]
    deltas = [
        {"type": kind, "output_index": 0, "summary_index": i, "delta": text} for i, text in told
    ]
    choice = message_of(CREATED, *deltas, completed())
    assert choice["message"]["reasoning_content"] == "ab\n\nc"


def test_encrypted_reasoning_has_its_place_in_the_loop():
    item = {"type": "reasoning", "id": "rs", "encrypted_content": "x", "summary": []}
    done = {"type": "response.output_item.done", "output_index": 1, "item": item}
    choice = message_of(CREATED, done, completed(), thoughts=2)
    assert choice["message"]["thinking_blocks"] == [{**item, "index": 2, "position": 1}]


@pytest.mark.parametrize(
    ("details", "finish"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        (None, "length"),
    ],
)
def test_an_incomplete_response_says_why(details, finish):
    response = {**HEAD, "status": "incomplete", "incomplete_details": details, "output": []}
    ending = {"type": "response.incomplete", "response": response}
    assert message_of(ending, usage=False)["finish_reason"] == finish


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
            {"message": "slow", "type": "server_error", "code": "rate_limit_exceeded"},
        ),
        (
            {"error": {"message": "bad", "type": "x"}},
            {"message": "bad", "type": "x", "code": None, "status": 500},
        ),
        (
            {"type": "response.failed", "response": {"error": None}},
            {"message": "no text", "status": 500},
        ),
    ],
)
def test_a_failure_ends_the_stream(event, error):
    chunks, ended = stream(CREATED, event, completed())
    assert not ended
    assert error.items() <= chunks[-1]["error"].items()


def test_a_stream_that_was_cut_has_no_end():
    chunks, ended = stream(CREATED, {"type": "response.in_progress", "response": HEAD}, "x")
    assert (len(chunks), ended) == (1, False)
    reader = StreamedResponse(0, False, bool)
    assert reader.feed(b"data: nothing\n\n: comment\n\n") == b""
    assert b"chunk" in reader.feed(b"data: " + json.dumps(CREATED).encode()) + reader.end()


@pytest.mark.parametrize("index", [None, -1, 4096])
def test_an_index_out_of_bounds_is_malformed(index):
    with pytest.raises(MalformedReply):
        stream({"type": "response.output_text.delta", "output_index": index, "delta": "x"})


@pytest.mark.parametrize("data", [b"[]", b"nothing", b'{"id": "x"}'])
def test_what_is_no_response_is_left_as_it_came(data):
    assert completion_of(data) == data


def test_a_whole_response_that_failed_is_an_error():
    told = json.loads(completion_of(b'{"status": "failed", "error": {"code": "x"}}'))
    assert told["error"] == {
        "message": "no text",
        "type": "server_error",
        "param": None,
        "code": "x",
        "status": 500,
    }
