"""JSON with very long strings: the same value comes back, in parts of bounded length."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import long_json
from memory.conversation.long_json import (
    LONG_CHARACTERS,
    SLICE_CHARACTERS,
    encode_in_groups,
    encode_in_parts,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@pytest.fixture
def short_slices(monkeypatch):
    monkeypatch.setattr(long_json, "LONG_CHARACTERS", 6)
    monkeypatch.setattr(long_json, "SLICE_CHARACTERS", 4)


@given(value=PLAIN)
def test_the_parts_say_the_value(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG_CHARACTERS", 6)
        patch.setattr(long_json, "SLICE_CHARACTERS", 4)
        assert json.loads(b"".join(encode_in_parts(value))) == value


@given(value=PLAIN, size=st.sampled_from([1, 2, 3]))
def test_in_groups_a_value_is_encoded_as_in_one_step(value, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "GROUP_ELEMENTS", size)
        assert encode_in_groups(value) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "text", "text": "b"}] * 50,
        [[{"text": "b"}]] * 50,
        {str(i): i for i in range(50)},
        {"messages": [{"content": [{"text": "b"}] * 50}]},
        list(range(50)),
    ],
    ids=["objects", "lists", "members", "parts", "numbers"],
)
def test_no_step_encodes_many_elements(value, monkeypatch):
    sizes = []

    def encode(elements):
        sizes.append(len(elements) if isinstance(elements, list | dict) else 1)
        return msgspec.json.encode(elements)

    monkeypatch.setattr(long_json, "GROUP_ELEMENTS", 8)
    monkeypatch.setattr(long_json, "_encode", encode)
    assert encode_in_groups(value) == msgspec.json.encode(value)
    assert max(sizes) <= 8


def test_a_value_without_long_strings_is_one_part():
    value = {"messages": [{"role": "user", "content": "hello"}]}
    assert encode_in_parts(value) == [msgspec.json.encode(value)]


def test_no_part_is_longer_than_a_slice():
    image = "data:image/png;base64," + "iVBO" * LONG_CHARACTERS
    value = {"messages": [{"content": [{"image_url": {"url": image}}, {"text": "what is it?"}]}]}
    parts = encode_in_parts(value)
    assert max(map(len, parts)) <= SLICE_CHARACTERS + 100
    assert msgspec.json.decode(b"".join(parts)) == value


def test_long_strings_stay_in_their_order(short_slices):
    value = ["first of all", {"second": "and so on and on"}, "short", "the last of them"]
    assert json.loads(b"".join(encode_in_parts(value))) == value


def test_a_string_deeper_than_is_looked_for_is_encoded_whole(short_slices):
    value = "a string that is long"
    for _ in range(long_json.DEPTH + 1):
        value = [value]
    assert encode_in_parts(value) == [msgspec.json.encode(value)]
