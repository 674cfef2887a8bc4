"""What the package is given of a server's messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools import mcp_messages as m

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def halves_replaced(value):
    """A value as its text is read, with U+FFFD for each half of a pair."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [halves_replaced(element) for element in value]
    if isinstance(value, dict):
        return {halves_replaced(k): halves_replaced(v) for k, v in value.items()}
    return value


@given(VALUES, st.booleans())
def test_whatever_a_program_writes_is_read(value, ascii_only):
    text = json.dumps({"x": value}, ensure_ascii=ascii_only).encode("utf-8", "replace")
    expected = halves_replaced(json.loads(text))
    assert repr(m.decode_message(text)) == repr(expected)


@given(
    st.lists(st.sampled_from(["\\ud83d", "\\ude00", "\\\\", "\\n", "u", "a", '\\"']), max_size=9)
)
def test_halves_of_pairs_are_told_from_backslashes_in_front_of_letters(parts):
    text = f'{{"x":"{"".join(parts)}"}}'
    expected = halves_replaced(json.loads(text))
    assert json.loads(m.mend_text(text.encode())) == expected


def test_an_answer_is_put_aside_once():
    answers = m.AnswerStore()
    result = {"content": [{"type": "hologram"}], "structuredContent": {"n": 10**30}}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
    given_result = json.loads(m.lighten_message(text, answers))["result"]
    assert given_result["content"] == []
    assert answers.take(given_result["_meta"]) == result
    assert answers.take(given_result["_meta"]) is None
    assert answers.take(None) is None


def test_answers_that_nobody_takes_have_a_bound():
    answers = m.AnswerStore()
    names = [answers.put({"n": number}, m.KEPT_BYTES // 4) for number in range(6)]
    kept = [answers.take({m.ANSWER: name}) for name in names]
    assert kept == [None, None, *({"n": number} for number in range(2, 6))]


@pytest.mark.parametrize(
    ("text", "given_text"),
    [
        (b'{"id":7,"result":{"content":[' + b"1," * 600_000 + b"1]}}", b'"id":7,"error"'),
        (b'{"result":{"content":[' + b"1," * 600_000 + b'1]},"id":"a"}', b'"id":"a","error"'),
        (b'{"id":7,"result":{"content":[', b'"id":7,"error"'),
        (b"Listening on port 80", b"Listening on port 80"),
        (b"[1,2]", b"[1,2]"),
        (b'{"id":7,"method":"m","params":[' + b"1," * 90_000 + b"1]}", b'{"id":7,"method":"m"}'),
        (b'{"id":7,"error":{"message":"no","data":[' + b"1," * 90_000 + b"1]}}", b'"no"'),
    ],
)
def test_what_cannot_be_read_ends_its_call(text, given_text):
    assert given_text in m.lighten_message(text, m.AnswerStore())
