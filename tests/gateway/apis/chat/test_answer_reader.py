"""Completions that are not taken apart: what they come to is what taking them apart tells."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.chat.answer_reader import plain_completion
from gateway.apis.chat.interceptor import Interceptor
from gateway.wire.chat import MalformedCompletion, chunk, lift

PLAIN = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1},
}
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
odd_values = st.sampled_from([None, [], {}, "", 0, 1, True, False, "text", [CALL], {"name": "f"}])
messages = st.dictionaries(
    st.sampled_from(["role", "content", "refusal", "annotations", "tool_calls", "function_call"])
    | st.sampled_from(["audio", "reasoning_content"]),
    odd_values | st.just("assistant"),
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "index": odd_values,
        "message": messages | odd_values,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls"]) | odd_values,
        "logprobs": odd_values,
        "delta": odd_values,
    },
)
completions = st.fixed_dictionaries(
    {},
    optional={
        "object": st.sampled_from(["chat.completion", "text"]),
        "choices": st.lists(choices | odd_values, max_size=2) | odd_values,
        "usage": st.sampled_from([None, {}, {"prompt_tokens": 3}, 7]),
        "model": st.just("m"),
    },
)


def taken_apart(completion):
    interceptor = Interceptor({"archival_memory_search"})
    return interceptor.whole(chunk(lift(completion), b""))


def test_a_text_alone_is_plain():
    plain = plain_completion(PLAIN)
    assert plain is not None
    assert plain.result() == taken_apart(PLAIN)
    assert plain.result().reply is PLAIN


@given(completions)
def test_what_is_plain_comes_to_what_taking_it_apart_tells(completion):
    before = copy.deepcopy(completion)
    plain = plain_completion(completion)
    if plain is not None:
        assert plain.result() == taken_apart(completion)
        assert plain.chunk() == chunk(lift(completion), b"")
    assert completion == before


@given(messages, st.sampled_from(["stop", "length", "content_filter", "tool_calls"]))
def test_odd_members_of_a_message_never_hide_in_a_plain_one(message, reason):
    choice = {"index": 0, "message": message, "finish_reason": reason}
    completion = {**PLAIN, "choices": [choice]}
    plain = plain_completion(completion)
    try:
        apart = taken_apart(completion)
    except MalformedCompletion:
        assert plain is None
        return
    assert plain is None or plain.result() == apart


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"role": "assistant", "content": "a", "tool_calls": [CALL]}},
        {"message": {"role": "assistant", "content": None}},
        {"message": {"role": "assistant", "content": "a", "reasoning_content": "b"}},
        {"message": {"role": "assistant", "content": "a"}, "logprobs": {"content": []}},
        {"message": {"role": "assistant", "content": "a"}, "index": 1},
        {"message": {"role": "assistant", "content": "a"}, "finish_reason": None},
    ],
    ids=["call", "no text", "thoughts", "probabilities", "second", "no finish"],
)
def test_a_choice_with_more_is_taken_apart(choice):
    completion = {**PLAIN, "choices": [{"index": 0, "finish_reason": "stop", **choice}]}
    assert plain_completion(completion) is None
