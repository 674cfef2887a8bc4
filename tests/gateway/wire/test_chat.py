"""The two laws on which one code path for stream and plain rests, and what the reader refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chat import MalformedCompletion, fold, lift, parse_chunk
from gateway.wire.merge import usage_sum
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


def test_parts_after_text_do_not_break_what_is_added_up():
    deltas = [{"content": "a"}, {"content": "b"}, {"content": [{"type": "text", "text": "c"}]}]
    chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    assert fold(chunks)["choices"][0]["message"]["content"] == deltas[-1]["content"]
