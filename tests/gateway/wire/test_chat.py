"""The two laws on which one code path for stream and plain rests, and what the reader refuses."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import chat
from gateway.wire import merge as merging
from gateway.wire.chat import (
    ChunkIdentity,
    CompletionBuilder,
    MalformedCompletion,
    MalformedReply,
    fold,
    lift,
    parse_chunk,
    unlift,
)
from gateway.wire.merge import growing_copy, merge, plain_text, usage_sum
from tests.gateway.wire.chunks import chunkings, completions


@given(completions())
def test_fold_of_lift_is_the_completion(completion):
    assert fold([lift(completion)]) == completion


@given(st.data())
def test_any_chunking_folds_to_the_completion(data):
    completion = data.draw(completions())
    assert fold(data.draw(chunkings(completion))) == completion


def test_a_new_id_at_a_used_index_is_a_new_call():
    def call(i):
        return {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [
                            {"index": 0, "id": i, "function": {"name": "f", "arguments": "{}"}}
                        ]
                    },
                }
            ]
        }

    calls = fold([call("a"), call("b")])["choices"][0]["message"]["tool_calls"]
    assert [c["id"] for c in calls] == ["a", "b"]
    assert [c["function"] for c in calls] == [{"name": "f", "arguments": "{}"}] * 2


def test_repeated_names_are_not_concatenated():
    delta = {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "a",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{"},
                        }
                    ]
                },
            }
        ]
    }
    call = fold([delta, delta])["choices"][0]["message"]["tool_calls"][0]
    assert call == {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{{"}}


@pytest.mark.parametrize(
    "payload",
    [
        b"<html>",
        b"[1]",
        b'"x"',
        b"{" * 5000,
        b"\xff",
        b'{"choices": 3}',
        b'{"choices": [1]}',
        b'{"choices": [{"delta": 3}]}',
        b'{"choices": [{"delta": {"tool_calls": [3]}}]}',
        b'{"choices": [{"delta": {"role": 3}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": 4096}]}}]}',
    ],
)
def test_what_is_not_a_chunk_is_malformed(payload):
    with pytest.raises(MalformedCompletion):
        parse_chunk(payload)


def test_usage_of_rounds_adds_up_at_every_level():
    one = {"prompt_tokens": 3, "details": {"cached": 1}, "cost": 0.5}
    assert usage_sum(one, {"prompt_tokens": 4, "details": {"cached": 2, "new": 1}}) == {
        "prompt_tokens": 7,
        "details": {"cached": 3, "new": 1},
        "cost": 0.5,
    }
    assert usage_sum(None, one) == one
    assert usage_sum({"tier": "a"}, {"tier": None}) == {"tier": "a"}


def test_parts_after_text_add_up_with_it():
    deltas = [{"content": "a"}, {"content": "b"}, {"content": [{"type": "text", "text": "c"}]}]
    chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    whole = [{"type": "text", "text": "abc"}]
    assert fold(chunks)["choices"][0]["message"]["content"] == whole


def test_a_large_text_with_half_a_pair_is_refused(monkeypatch):
    monkeypatch.setattr(chat, "MENDED_BYTES", 3)
    with pytest.raises(msgspec.DecodeError):
        chat.decode(b'"\\ud83d"')


@pytest.mark.parametrize("data", [b"<html>", b"[1]", b"{" * 5000])
def test_what_is_no_object_is_refused_or_empty(data):
    assert chat.object_or_empty(data) == {}
    with pytest.raises(MalformedReply):
        chat.read_object(data)
    assert chat.read_object(b'{"a": 1}') == {"a": 1}


def test_a_choice_of_which_nothing_is_kept_is_left_out():
    choices = [{"index": i, "delta": {"content": text}} for i, text in enumerate("ab")]
    read = parse_chunk(chat.encode({"choices": choices}))
    shown = json.loads(read.render(read.segments[1:], ChunkIdentity(), set()))
    assert [(c["index"], c["delta"]["content"]) for c in shown["choices"]] == [(1, "b")]
    assert read.render([], ChunkIdentity(), set()) is None


def test_a_lean_builder_leaves_probabilities_out_and_grows_by_single_deltas():
    builder = CompletionBuilder(lean=True)
    builder.add({"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}}]})
    other = builder.copy()
    builder.more(0, {"content": "b"})
    other.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    assert builder.whole()["choices"] == [{"index": 0, "message": {"content": "ab"}}]
    assert (builder.finish(0), other.finish(0), other.finish(1)) == (None, "stop", None)
    assert unlift(lift(other.whole())) == other.whole()


@given(st.lists(st.text(max_size=3), min_size=1, max_size=600))
def test_a_text_of_many_pieces_is_their_concatenation(pieces):
    into: dict = {}
    for piece in pieces:
        merge(into, {"content": piece})
    assert plain_text(into)["content"] == "".join(pieces)
    assert plain_text(growing_copy(into)) == plain_text(into)


def test_calls_of_a_completion_can_be_copied_and_grow_on():
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}
    into: dict = {}
    merge(into, {"tool_calls": [call], "parts": [1, {"x": [2]}]})
    copied = growing_copy(into)
    merge(copied, {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})
    assert plain_text(copied)["tool_calls"][0]["function"]["arguments"] == "{}"
    assert plain_text(into)["tool_calls"] == [call]


def test_a_long_text_is_joined_now_and_then():
    into: dict = {"content": "x"}
    for _ in range(600):
        merge(into, {"content": "yz"})
    assert len(into["content"]) < 300
    assert plain_text(into)["content"] == "x" + "yz" * 600


def test_a_piece_of_a_call_without_an_index_goes_on_with_the_last_call():
    pieces = [
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"function": {"arguments": "}"}},
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [p]}}]} for p in pieces]
    (call,) = fold(chunks)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": "{}"}


def test_a_copied_list_goes_on_by_its_indexes():
    into: dict = {}
    merge(into, {"parts": {"list": [{"index": 1, "text": "a"}]}, "note": ["x"]})
    merge(into, {"parts": {"list": [{"index": 1, "text": "b"}]}, "note": 3})
    merge(into, {"note": None})
    assert plain_text(into) == {"parts": {"list": [{"index": 1, "text": "ab"}]}, "note": 3}


def test_a_text_with_large_pieces_grows_where_it_is(monkeypatch):
    """Its pieces are not all joined at the end, when that would hold the event loop."""
    monkeypatch.setattr(merging, "LARGE_CHARACTERS", 4)
    merged = {}
    lengths = []
    for piece in ("Hi", " ", "long", "longer", "a", "b", "long"):
        merge(merged, {"content": piece})
        lengths.append(len(merged["content"]))
    assert lengths[2:] == [1, 1, 2, 3, 1]
    assert plain_text(merged) == {"content": "Hi longlongerablong"}


@given(st.lists(st.text("aé字", min_size=1, max_size=6), min_size=2, max_size=40))
def test_a_text_of_large_and_small_pieces_is_all_of_them(pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "LARGE_CHARACTERS", 4)
        merged = {}
        for piece in pieces:
            merge(merged, {"content": piece})
        copied = growing_copy(merged)
        merge(copied, {"content": "more"})
    assert plain_text(merged) == {"content": "".join(pieces)}
    assert plain_text(copied) == {"content": "".join(pieces) + "more"}
