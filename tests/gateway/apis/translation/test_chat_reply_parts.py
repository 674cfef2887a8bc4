"""The answer of a chat completion in the client's format: laws, and single cases."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.translation.chat_reply_parts import MAX_PARTS
from gateway.apis.translation.chat_tools import ChatTools, ToolOrigin
from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.reply_stream import BridgedStream, refusal, whole_reply
from gateway.apis.translation.responses_reply_from_chat import ResponsesReply
from gateway.wire.chat import MalformedReply
from tests.e2e.messages.client import fold
from tests.e2e.responses.asking import check_stream
from tests.wire_models import pieces, sse

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
BODY = {"model": "m", "instructions": "I", "tools": [{"type": "function", "name": "f"}]}


def tools():
    out = ChatTools()
    out.add_custom({}, "patch")
    out.add(ToolOrigin("open", "files"), {})
    return out


def responses():
    return ResponsesReply(BODY, tools(), "abc", 7)


def messages():
    return MessagesReply("m", "abc")


BOTH = pytest.mark.parametrize("make", [responses, messages])


def chunk(delta, finish=None, **more):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "model": "up", "choices": choices, **more}


def call(index, name=None, arguments="", ident=None):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "id": ident, "function": function}


def sent(chunks, done=True):
    text = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def streamed(make, data, cuts=()):
    stream, at, out = BridgedStream(make()), 0, b""
    for cut in [*sorted(cuts), len(data)]:
        out += stream.feed(data[at:cut])
        at = cut
    return sse((out + stream.end()).decode())


def shown(make, chunks, **more):
    return streamed(make, sent(chunks, **more))


text = st.text(st.characters(codec="utf-8"), max_size=12)
arguments = st.dictionaries(st.text(max_size=4), text, max_size=2).map(json.dumps)
made_calls = st.lists(
    st.tuples(st.sampled_from(["f", "patch", "files__open"]), arguments), max_size=3
)
finishes = st.sampled_from(["stop", "length", "content_filter", "tool_calls"])


@st.composite
def completions(draw):
    message = {"role": "assistant", "content": draw(st.none() | text)}
    message["reasoning_content"] = draw(st.none() | text)
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}}
        for i, (n, a) in enumerate(draw(made_calls))
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": draw(finishes)}
    return {"id": "c", "model": "up", "choices": [choice], "usage": USAGE}


def as_chunks(completion):
    choice = completion["choices"][0]
    message = choice["message"]
    yield chunk({"role": "assistant", "content": ""})
    for member in ("reasoning_content", "content"):
        yield from (chunk({member: p}) for p in pieces(message.get(member) or "", 3))
    for i, c in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [call(i, c["function"]["name"], ident=c["id"])]})
        for piece in pieces(c["function"]["arguments"], 3):
            yield chunk({"tool_calls": [call(i, arguments=piece)]})
    yield chunk({}, choice["finish_reason"])
    yield {**chunk({}), "choices": [], "usage": completion["usage"]}


@given(completions())
def test_a_streamed_response_is_the_plain_one(completion):
    events = shown(responses, as_chunks(completion))
    check_stream(events)
    plain = json.loads(whole_reply(json.dumps(completion).encode(), responses()))
    assert events[-1]["response"] == plain


@given(completions())
def test_a_streamed_message_is_the_plain_one(completion):
    folded = fold(shown(messages, as_chunks(completion)))
    assert folded == json.loads(whole_reply(json.dumps(completion).encode(), messages()))


@given(completions(), st.data())
def test_any_pieces_give_the_same_events(completion, data):
    told = sent(as_chunks(completion))
    cuts = data.draw(st.lists(st.integers(0, len(told)), max_size=8))
    for make in (responses, messages):
        assert streamed(make, told, cuts) == streamed(make, told)


TURN = [
    chunk({"reasoning": "Hm. "}),
    chunk({"content": "Let "}),
    chunk({"content": "me see."}),
    chunk({"tool_calls": [call(0, "f", "", "c1")]}),
    chunk({"tool_calls": [call(0, None, '{"a"')]}),
    chunk({"tool_calls": [call(0, None, ":1}")]}),
    chunk({"tool_calls": [call(1, "patch", '{"input": "x"}', "c2")]}),
    chunk({"tool_calls": [call(2, "files__open", "", "c1")]}),
    chunk({}, "tool_calls"),
    {"choices": [], "usage": USAGE},
]


def test_a_response_of_all_kinds():
    events = shown(responses, TURN)
    check_stream(events)
    response = events[-1]["response"]
    thought, said, first, second, third = response["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm. "}]
    assert "encrypted_content" not in thought
    assert said["content"][0]["text"] == "Let me see."
    assert (first["name"], first["call_id"], first["arguments"]) == ("f", "c1", '{"a":1}')
    assert (second["type"], second["input"]) == ("custom_tool_call", "x")
    assert (third["name"], third["namespace"], third["arguments"]) == ("open", "files", "{}")
    assert third["call_id"] not in ("c1", "c2")
    assert response["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 110,
    }
    echo = {"instructions": "I", "model": "up", "store": False, "status": "completed"}
    assert {k: response[k] for k in echo} == echo
    types = [e["type"] for e in events]
    assert "response.reasoning_text.delta" in types
    assert "response.custom_tool_call_input.done" in types


def test_a_message_of_all_kinds_shows_no_thinking():
    message = fold(shown(messages, TURN))
    assert [b["type"] for b in message["content"]] == ["text", "tool_use", "tool_use", "tool_use"]
    assert message["content"][1]["input"] == {"a": 1}
    assert message["stop_reason"] == "tool_use"
    assert message["usage"] == {
        "input_tokens": 60,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 40,
        "output_tokens": 10,
    }
    assert "Hm." not in json.dumps(message)


ENDS = [
    ("length", "incomplete", "max_output_tokens", "max_tokens"),
    ("content_filter", "incomplete", "content_filter", "refusal"),
    ("stop", "completed", None, "end_turn"),
]


@pytest.mark.parametrize(("finish", "status", "reason", "stop"), ENDS)
def test_why_an_answer_ends(finish, status, reason, stop):
    chunks = [chunk({"content": "So"}), chunk({}, finish)]
    response = shown(responses, chunks)[-1]["response"]
    details = response["incomplete_details"]
    assert (response["status"], details and details["reason"]) == (status, reason)
    assert response["usage"] is None
    assert fold(shown(messages, chunks))["stop_reason"] == stop


def test_a_refusal():
    chunks = [chunk({"refusal": "No"}), chunk({"refusal": "."}), chunk({}, "stop")]
    events = shown(responses, chunks)
    check_stream(events)
    (item,) = events[-1]["response"]["output"]
    assert item["content"] == [{"type": "refusal", "refusal": "No."}]
    message = fold(shown(messages, chunks))
    assert (message["content"][0]["text"], message["stop_reason"]) == ("No.", "refusal")


@BOTH
def test_a_name_may_come_in_pieces_and_twice(make):
    chunks = [
        chunk({"tool_calls": [call(0, "get_", "", "c")]}),
        chunk({"tool_calls": [call(0, "weather")]}),
        chunk({"tool_calls": [call(0, "get_weather", "{")]}),
        chunk({"tool_calls": [call(0, "get_weather", "}")]}),
        chunk({}, "tool_calls"),
    ]
    told = json.dumps(shown(make, chunks))
    assert '"name": "get_weather"' in told
    assert "get_weatherget" not in told


@BOTH
def test_calls_without_an_index_or_an_id(make):
    one = {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}
    more = {"function": {"arguments": " "}}
    two = {"id": "b", "function": {"name": "g", "arguments": "{}"}}
    chunks = [chunk({"tool_calls": [c]}) for c in (one, more, two)]
    found = [e for e in shown(make, [*chunks, chunk({}, "stop")]) if "name" in json.dumps(e)]
    assert '"x' in json.dumps(found) or '\\"x' in json.dumps(shown(make, [*chunks, chunk({}, "x")]))
    alone = shown(make, [chunk({"tool_calls": [{"function": {"name": "f"}}]}), chunk({}, "stop")])
    assert "call_abc_0" in json.dumps(alone)


@BOTH
def test_calls_that_grow_side_by_side(make):
    chunks = [
        chunk({"tool_calls": [call(0, "f", '{"a":', "c1"), call(1, "f", '{"b":', "c2")]}),
        chunk({"content": "Meanwhile."}),
        chunk({"tool_calls": [call(1, None, "2}"), call(0, None, "1}")]}),
        chunk({"tool_calls": [call(2, "f", "{}", "c3"), call(0, None, "late")]}),
        chunk({}, "tool_calls"),
    ]
    writer = make()
    for found in chunks:
        list(writer.feed(found))
    list(writer.stop())
    whole = json.dumps(writer.whole())
    assert "late" not in whole
    assert [p.text for p in writer.parts] == ['{"a":1}', '{"b":2}', "Meanwhile.", "{}"]


def test_input_that_is_no_json_stays_a_text():
    writer = messages()
    for found in [chunk({"tool_calls": [call(0, "f", "{x", "c")]}), chunk({}, "stop")]:
        list(writer.feed(found))
    assert writer.whole()["content"][0]["input"] == "{x"


@BOTH
def test_parts_of_content_and_what_is_none(make):
    odd = [{"type": "text", "text": "Yes"}, {"type": "thinking"}, "x", {"text": ""}]
    chunks = [
        chunk({"content": odd, "tool_calls": ["x", {"function": 7}]}),
        {"choices": ["x", {"index": 1, "delta": {"content": "No"}}, {"index": 0}]},
        {"choices": None},
        chunk({}, "stop"),
        chunk({}, "length"),
    ]
    told = json.dumps(shown(make, chunks))
    assert "Yes" in told
    assert "No" not in told.replace("None", "")


@BOTH
def test_an_answer_that_is_cut_has_no_end(make):
    events = shown(make, [chunk({"content": "So"})])
    assert events[-1]["type"].endswith("delta")


@BOTH
def test_an_error_in_the_stream_is_the_last_event(make):
    error = {"error": {"message": "overloaded", "code": 529}}
    events = shown(make, [chunk({"content": "So"}), error, chunk({"content": "more"}, "stop")])
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["message"] == "overloaded"
    assert shown(messages, [{"error": "text"}])[-1]["error"]["type"] == "api_error"


@BOTH
def test_the_end_without_done_and_an_event_without_its_blank_line(make):
    last = json.dumps(chunk({}, "stop"))
    data = sent([chunk({"content": "So"})], done=False) + f"data: {last}".encode()
    whole = streamed(make, data)
    assert whole[-1]["type"] in ("response.completed", "message_stop")
    assert streamed(make, data[:-3])[-1]["type"].endswith("delta")
    assert streamed(make, b": comment\n\n" + data) == whole


BROKEN = [b"data: {\n\n", b"data: []\n\n", b"data: [" + b"[]," * 1_000_001 + b"]\n\n"]


@pytest.mark.parametrize("data", BROKEN)
def test_what_is_no_chunk_is_told(data):
    with pytest.raises(MalformedReply):
        BridgedStream(messages()).feed(data)


def test_parts_and_calls_have_a_bound():
    writer = messages()
    with pytest.raises(MalformedReply):
        list(writer.feed(chunk({"tool_calls": [call(5000, "f", "{}")]})))
    with pytest.raises(MalformedReply):
        for _ in range(MAX_PARTS):
            list(writer.feed(chunk({"reasoning_content": "a", "content": "b"})))


@BOTH
@pytest.mark.parametrize("data", [b"{", b'{"x":1}', b'{"choices":7}', b"[" + b"[]," * 1_000_001])
def test_a_whole_answer_that_is_no_completion_is_left(make, data):
    assert whole_reply(data, make()) == data


REFUSALS = [
    (b'{"error":{"message":"no","code":"x"}}', 400, "invalid_request_error", "no"),
    (b'{"error":"no"}', 429, "rate_limit_error", "no"),
    (b'{"object":"error","message":"no"}', 418, "invalid_request_error", "no"),
    (b"<html>", 502, "api_error", "<html>"),
    (b"[]", 500, "api_error", "[]"),
    (b"", 500, "api_error", "no text"),
]


@pytest.mark.parametrize(("data", "status", "kind", "text"), REFUSALS)
def test_a_refusal_has_the_clients_shape(data, status, kind, text):
    told = json.loads(refusal(data, messages(), status))
    assert told == {"type": "error", "error": {"type": kind, "message": text}}
    error = json.loads(refusal(data, responses(), status))["error"]
    assert error["message"] == text
    assert {"type", "param", "code"} <= set(error)


def test_reasoning_of_a_response_has_its_part_before_its_text():
    writer = ResponsesReply({"model": "m"}, ChatTools(), "x", 1)
    choice = {"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": "stop"}
    found = [e["type"] for e in writer.feed({"choices": [choice]})]
    assert found.index("response.content_part.added") < found.index("response.reasoning_text.delta")
    assert found.index("response.reasoning_text.done") < found.index("response.content_part.done")


@pytest.mark.parametrize("late", [None, "g"], ids=["tail", "call"])
def test_what_is_said_beside_a_tail_goes_with_its_call(late):
    """A delta with another id, behind whole arguments, may begin a call or belong to that one."""
    writer = responses()
    beside = {"extra_content": {"signature": "s"}}
    deltas = [
        call(0, "f", "{}", "a"),
        {"index": 0, "id": "b", "function": {}, **beside},
        *([call(0, late, "{}", "b")] if late else []),
    ]
    for delta in deltas:
        list(writer.feed(chunk({"tool_calls": [delta]})))
    list(writer.feed(chunk({}, "tool_calls")))
    list(writer.stop())
    sealed = writer.carried.whole()
    assert sealed is not None
    assert [(c.place, c.ident) for c in sealed.calls] == [(1, "b") if late else (0, "a")]
    assert sealed.calls[0].members == beside
