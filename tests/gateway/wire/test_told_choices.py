"""What tells nothing is as if it were not there, whatever its type; an index is a number."""

from __future__ import annotations

import json

import pytest

from gateway.wire.chat import ChunkIdentity, MalformedCompletion, encode, fold, parse_chunk
from gateway.wire.merge import merge, plain_text

TEXT = {"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}
NOTHING = (None, "", 0, False, [], {})


def shown(body):
    read = parse_chunk(encode(body))
    told = read.render(read.segments, ChunkIdentity(), set())
    return read, None if told is None else json.loads(told)


@pytest.mark.parametrize("nothing", NOTHING)
def test_what_tells_nothing_is_left_out(nothing):
    assert shown({"choices": nothing})[0].segments == []
    assert shown({"choices": [TEXT, *([] if nothing == {} else [nothing])]})[1]["choices"] == [TEXT]
    for member in ("tool_calls", "role"):
        delta = {"content": "a", member: nothing}
        read, told = shown({"choices": [{"index": 0, "delta": delta}]})
        assert [s.value for s in read.segments] == ["a"]
        assert told["choices"][0]["delta"]["role"] == "assistant"
    read, told = shown({"choices": [{"index": 0, "delta": nothing}]})
    assert told["choices"][0]["delta"] == {"role": "assistant"}


@pytest.mark.parametrize("index", [1, 1.0, "1"])
def test_an_index_is_shown_as_a_number(index):
    read, told = shown({"choices": [{**TEXT, "index": index}]})
    assert [s.lane for s in read.segments] == [1]
    assert type(told["choices"][0]["index"]) is int


@pytest.mark.parametrize("index", [True, -1, 256, "x", [1], 0.5])
def test_an_index_that_nobody_can_read_is_malformed(index):
    with pytest.raises(MalformedCompletion):
        parse_chunk(encode({"choices": [{**TEXT, "index": index}]}))


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("have", [["x"], {"a": "x"}])
def test_what_has_grown_stays_where_nothing_follows(have, nothing):
    into = {}
    merge(into, {"member": have})
    merge(into, {"member": nothing})
    assert plain_text(into) == {"member": have}


def test_calls_stay_beside_an_empty_object():
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    deltas = [{"tool_calls": [call]}, {"tool_calls": {}}]
    whole = fold([{"choices": [{"index": 0, "delta": delta}]} for delta in deltas])
    assert len(whole["choices"][0]["message"]["tool_calls"]) == 1
