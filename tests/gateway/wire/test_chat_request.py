"""A request that cannot be read is refused with the place and the name of the fault."""

from __future__ import annotations

import pytest

from gateway.errors import BadRequest
from gateway.wire import chat_request
from gateway.wire.chat_request import check_messages, check_model, messages_of, parse

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": x}', "at byte 6"),
        (b'{"a": "b', "at byte 8"),
        (b'{"a": "\xff"}', "at byte 7"),
        (b"[1]", "must be a JSON object, not a list"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_with_its_place(body, words):
    with pytest.raises(BadRequest, match=words) as refused:
        parse(body)
    assert refused.value.code == "invalid_json"


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 9])
def test_a_byte_that_is_no_utf8_is_found_in_any_step(at, monkeypatch):
    monkeypatch.setattr(chat_request, "STEP_BYTES", 4)
    body = b'"' + "é".encode() * at + b"\xff" + b'"'
    with pytest.raises(BadRequest, match=f"at byte {1 + 2 * at}:"):
        parse(body)


def test_an_error_without_a_place_is_told_without_one():
    def read(_):
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "elsewhere")

    with pytest.raises(BadRequest, match=r"valid JSON: "):
        parse(b"{}", read)


def test_a_sound_body_is_its_object():
    assert parse(b'{"model": "m"}') == {"model": "m"}


@pytest.mark.parametrize("model", [None, "", 3])
def test_a_request_names_its_model(model):
    with pytest.raises(BadRequest) as refused:
        check_model({"model": model})
    assert refused.value.param == "model"
    check_model({"model": "m"})


@pytest.mark.parametrize("messages", [None, [], [3], [{}], [{"role": 3}]])
def test_a_translated_request_has_messages(messages):
    with pytest.raises(BadRequest):
        messages_of({"messages": messages})
    assert messages_of({"messages": [USER]}) == [USER]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [USER, 3]}, "messages[1]"),
        ({"messages": [{"role": 3}]}, "messages[0]"),
        ({"messages": [{**USER, "tool_calls": 3}]}, "messages[0].tool_calls"),
        ({"messages": [{**USER, "tool_calls": [3]}]}, "messages[0].tool_calls"),
        ({"messages": [USER], "tools": {}}, "tools"),
    ],
)
def test_the_refusal_names_the_member(body, param):
    with pytest.raises(BadRequest) as refused:
        check_messages(body)
    assert refused.value.param == param


def test_messages_are_counted_from_those_that_are_known():
    check_messages({"messages": []}, checked_count=2)
    check_messages({"messages": [{**USER, "tool_calls": [{}]}], "tools": []})
    with pytest.raises(BadRequest) as refused:
        check_messages({"messages": [3]}, checked_count=2)
    assert refused.value.param == "messages[2]"
