"""A large JSON text is read slice by slice, and says what a decoder makes of the whole."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import json_slices
from gateway.wire.json_slices import discard, read_in_slices
from memory.conversation.steps import pausing_with

TEXTS = st.text(st.sampled_from('ab"\\[]{},: \né😀'), max_size=12)
VALUES = st.recursive(
    TEXTS
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.none()
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=30,
)


@pytest.fixture(autouse=True, scope="module")
def short_slices():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_slices, "SLICE_BYTES", 24)
        patch.setattr(json_slices, "LEVELS", 3)
        yield


@given(VALUES, st.sampled_from([None, 1]))
def test_a_text_says_the_same_read_in_slices(value, indent):
    text = json.dumps(value, indent=indent).encode()
    assert read_in_slices(text) == msgspec.json.decode(text)


@given(VALUES, st.binary(max_size=3), st.integers(0, 400))
def test_a_broken_text_is_read_by_none_or_by_both(value, put, place):
    text = json.dumps(value).encode()
    place %= len(text) + 1
    text = text[:place] + put + text[place:]
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            read_in_slices(text)
    else:
        assert read_in_slices(text) == whole


ESCAPES = [r"\\", r"\"", r"\n", r"\u00e9", r"\ud83d\ude00", r"\uD83D\uDE00", r"\ud83d", r"\ude00"]
PLAIN = ["a", "u", "d83d", "é", "😀", "words of some length"]
ESCAPED = st.lists(st.sampled_from(ESCAPES + PLAIN), max_size=60).map("".join)


@given(ESCAPED)
def test_a_string_says_the_same_read_in_slices(escaped):
    text = f'{{"text": "{escaped}"}}'.encode()
    try:
        whole = msgspec.json.decode(text)
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            read_in_slices(text)
    else:
        assert read_in_slices(text) == whole


@pytest.mark.parametrize("part", ["a", "\\", '"', "é", "😀", "\\u"])
def test_a_string_is_read_in_as_many_steps_as_it_has_slices(part):
    text = json.dumps(part * 3000, ensure_ascii=False).encode()
    steps = []
    with pausing_with(lambda: steps.append(1)):
        assert read_in_slices(text) == part * 3000
    assert len(steps) > len(text) // (2 * json_slices.SLICE_BYTES)


def test_of_members_of_one_name_the_last_is_read():
    text = b'{"a": 1, "b": [1, 2, 3, 4, 5, 6, 7, 8, 9], "a": {"c": "........................"}}'
    assert read_in_slices(text) == msgspec.json.decode(text)


def test_no_step_reads_more_than_a_slice_and_what_is_split_is_read_once():
    """Also where large values hold large values."""
    text = json.dumps({"a": [{"b": [{"c": "x" * 8, "d": n} for n in range(40)]}] * 3}).encode()
    sizes, decode = [], json_slices._decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_slices, "SLICE_BYTES", 256)
        patch.setattr(json_slices, "LEVELS", 8)
        patch.setattr(json_slices, "_decode", lambda raw: sizes.append(len(raw)) or decode(raw))
        assert read_in_slices(text) == decode(text)
    assert max(sizes) <= 256 + 2
    assert sum(sizes) <= 1.1 * len(text)


def test_what_nobody_uses_is_emptied_in_steps(monkeypatch):
    value = {"a": [[{"b": [n]} for n in range(10)] for _ in range(10)]}
    inner = value["a"][3]
    steps = []
    monkeypatch.setattr(json_slices, "EMPTIED_TOGETHER", 2)
    with pausing_with(lambda: steps.append(len(inner))):
        discard(value)
    assert value == {}
    assert inner == []
    assert len(steps) >= 50
