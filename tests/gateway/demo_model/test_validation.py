"""What the bundled model refuses, and that nothing else makes it fall over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.demo_model.engine import reply
from gateway.demo_model.validation import check_chat
from gateway.errors import BadRequest
from tests.gateway.demo_model.test_engine import WEATHER

USER = {"role": "user", "content": "hi"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "hi"},
        {"messages": [3]},
        {"messages": [{"role": "king", "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": 3}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
        {"messages": [USER, CALL]},
        {"messages": [USER, CALL, USER, RESULT]},
        {"messages": [USER, RESULT]},
        {"messages": [USER, CALL, RESULT, RESULT]},
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]},
        {"messages": [USER], "tools": []},
        {"messages": [USER], "tool_choice": "auto"},
        {"messages": [USER], "tools": [{"type": "function"}]},
        {"messages": [USER], "tools": ["x"]},
        {
            "messages": [USER],
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "function": {"name": "other"}},
        },
        {"messages": [USER], "n": 0},
        {"messages": [USER], "n": True},
        {"messages": [USER], "stream_options": 3},
        {"messages": [USER], "response_format": {"json_schema": 3}},
    ],
)
def test_a_malformed_request_is_refused(body):
    with pytest.raises(BadRequest):
        check_chat(body)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["user", "tool", "function", "", "What is my name?"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "type",
                    "parameters",
                    "required",
                    "properties",
                    "id",
                    "arguments",
                    "text",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(
    st.fixed_dictionaries(
        {"messages": ANY | st.lists(ANY | st.just(USER), max_size=3)},
        optional={
            "tools": ANY | st.lists(ANY | st.just(WEATHER)),
            "tool_choice": ANY,
            "response_format": ANY,
            "n": ANY,
        },
    )
)
def test_whatever_is_sent_is_refused_or_answered(body):
    try:
        check_chat(body)
    except BadRequest:
        return
    message = reply(body)
    assert message.get("tool_calls") or isinstance(message["content"], str)
