"""A call that is told twice, or in the form of old, is told once; what is ours is never shown.

llama-cpp-python tells calls in `tool_calls` and in `function_call`, MiniMax repeats them in the
`message` of its last event, older servers answer `tools` with `function_call`.
"""

from __future__ import annotations

import json

import pytest

from gateway.apis.chat.chat_format import CHAT
from gateway.apis.translation.messages_reply_from_chat import MessagesReply
from gateway.apis.translation.reply_stream import BridgedStream, whole_reply
from gateway.wire.chat import encode, lift
from gateway.wire.sse import SseEvent

HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
OURS, THEIRS = "core_memory_append", "weather"
ARGUMENTS = '{"label": "human", "content": "teal"}'
PIECES = (ARGUMENTS[:9], ARGUMENTS[9:30], ARGUMENTS[30:])


def chunk_of(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {**HEAD, "choices": [choice]}


def call_of(name, text, index=0):
    function = {"arguments": text} | ({"name": name} if name else {})
    return {"index": index, "id": "call_0", "type": "function", "function": function}


def told_twice(name):
    """Return chunks as llama-cpp-python sends them: the name in each."""
    function = [{"name": name, "arguments": piece} for piece in PIECES]
    deltas = [{"function_call": f, "tool_calls": [call_of(name, f["arguments"])]} for f in function]
    return [*map(chunk_of, [{"role": "assistant"}, *deltas]), chunk_of({}, "tool_calls")]


def told_as_of_old(name):
    first = chunk_of({"role": "assistant", "function_call": {"name": name, "arguments": ""}})
    more = [chunk_of({"function_call": {"arguments": piece}}) for piece in PIECES]
    return [first, *more, chunk_of({}, "function_call")]


def told_again_at_the_end(name):
    """Return chunks as MiniMax sends them: the last repeats the whole message."""
    deltas = [{"tool_calls": [call_of(name if i == 0 else "", p)]} for i, p in enumerate(PIECES)]
    message = {"role": "assistant", "content": "", "tool_calls": [call_of(name, ARGUMENTS)]}
    last = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return [*map(chunk_of, deltas), {**HEAD, "object": "chat.completion", "choices": [last]}]


def told_at_once(name):
    """Return one event with the whole message, and no delta."""
    message = {"role": "assistant", "content": None, "tool_calls": [call_of(name, ARGUMENTS)]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return [{**HEAD, "object": "chat.completion", "choices": [choice]}]


SHAPES = (told_twice, told_as_of_old, told_again_at_the_end, told_at_once)


def mask_of(*, stream=True):
    return CHAT.mask({"stream": stream}, [OURS], None, injected=True, view=None)


async def shown_by(mask, chunks):
    out = b""
    for body in chunks:
        data = encode(body)
        out += await mask.show(SseEvent(b"data: " + data + b"\n\n", data))
    rest, result = mask.close()
    return (out + rest).decode(), result


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_of_ours_is_run_and_shown_in_no_member(shape):
    mask = mask_of()
    shown, result = await shown_by(mask, shape(OURS))
    assert OURS not in shown
    assert "teal" not in shown
    assert [call["function"]["name"] for call in result.ours] == [OURS]
    assert json.loads(result.ours[0]["function"]["arguments"]) == json.loads(ARGUMENTS)
    assert "function_call" not in result.reply["choices"][0]["message"]
    mask.start_next_round()
    shown, _ = await shown_by(mask, [chunk_of({"content": "Done."}), chunk_of({}, "stop")])
    assert "Done." in shown
    assert OURS not in json.dumps(mask.answers())


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_call_of_the_client_is_shown_as_it_came(shape):
    chunks = shape(THEIRS)
    shown, result = await shown_by(mask_of(), chunks)
    assert not result.ours
    assert THEIRS in shown
    if shape in (told_twice, told_as_of_old):
        events = [json.loads(event[6:]) for event in shown.split("\n\n") if event]
        deltas = [event["choices"][0]["delta"] for event in events]
        assert deltas == [body["choices"][0]["delta"] for body in chunks]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_bridge_shows_a_call_however_it_is_told(shape):
    stream = BridgedStream(MessagesReply("m", "1"))
    frames = [b"data: " + encode(body) + b"\n\n" for body in shape(THEIRS)]
    text = (b"".join(map(stream.feed, frames)) + stream.end()).decode()
    assert text.count(f'"name":"{THEIRS}"') == 1
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    deltas = [json.loads(event).get("delta", {}) for event in events]
    arguments = "".join(delta.get("partial_json", "") for delta in deltas)
    assert json.loads(arguments) == json.loads(ARGUMENTS)


@pytest.mark.parametrize("both", [True, False])
async def test_a_whole_answer_hides_a_call_of_the_older_form(both):
    message = {"role": "assistant", "content": None}
    message["function_call"] = {"name": OURS, "arguments": ARGUMENTS}
    if both:
        message["tool_calls"] = [call_of(OURS, ARGUMENTS)]
    choice = {"index": 0, "message": message, "finish_reason": "function_call"}
    completion = {**HEAD, "object": "chat.completion", "choices": [choice]}
    answer, _ = CHAT.read_whole(encode(completion))
    mask = mask_of(stream=False)
    assert mask.take_whole(answer) is None
    assert OURS not in b"".join(mask.show_whole(answer)).decode()
    _, result = mask.close()
    assert len(result.ours) == 1
    # Unchanged.
    assert lift(completion)["choices"][0]["delta"]["function_call"]["name"] == OURS


async def test_text_that_is_told_again_in_a_message_is_recorded_once():
    """Perplexity sends the text so far beside each delta."""
    chunks = [
        chunk_of({"content": piece}, message={"role": "assistant", "content": "abc"[: i + 1]})
        for i, piece in enumerate("abc")
    ]
    mask = mask_of()
    shown, _ = await shown_by(mask, [*chunks, chunk_of({}, "stop")])
    assert [a["content"] for a in mask.answers()] == ["abc"]
    # As it came.
    assert '"message":' in shown


async def test_a_message_in_place_of_deltas_is_shown_as_one():
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    mask = mask_of()
    shown, _ = await shown_by(mask, [{**HEAD, "choices": [choice]}])
    delta = json.loads(shown[6:])["choices"][0]["delta"]
    assert delta == message
    assert [a["content"] for a in mask.answers()] == ["Hello"]


@pytest.mark.parametrize("odd", [None, "", 3, [OURS], {"name": [OURS]}, {"name": {}}])
async def test_what_is_no_call_in_these_members_passes_as_it_came(odd):
    chunks = [
        chunk_of({"content": "a", "function_call": odd}, message={"tool_calls": [odd]}),
        chunk_of({"content": "b"}, message=odd),
        chunk_of({}, "stop"),
    ]
    mask = mask_of()
    shown, result = await shown_by(mask, chunks)
    assert not result.ours
    assert [a["content"] for a in mask.answers()] == ["ab"]
    assert '"stop"' in shown


def test_thoughts_in_parts_of_a_content_are_no_text():
    """Mistral's reasoning models send them so."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}
    message = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply = MessagesReply("m", "1")
    answer = json.loads(whole_reply(encode({**HEAD, "choices": [choice]}), reply))
    assert [b["text"] for b in answer["content"] if b["type"] == "text"] == ["Yes."]
