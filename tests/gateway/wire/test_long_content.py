"""A long string is sent on as it is encoded at once, and is held in no copy meanwhile."""

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.base import join_body, size_of
from gateway.wire.chat import encode
from gateway.wire.lone_surrogates import FIRST, OPENING
from gateway.wire.long_content import LongContent, encode_json_late
from memory.conversation import long_json

TEXTS = st.text(st.sampled_from('ab"\\\né天😀'), max_size=30)
# Stands for one that came.
HALF = OPENING + chr(FIRST + 0x3D)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_the_parts_are_the_text_that_is_encoded_at_once(value, halves):
    value = {"value": value, "half": HALF * 9 if halves else ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG_CHARACTERS", 6)
        patch.setattr(long_json, "SLICE_CHARACTERS", 4)
        content = encode_json_late(value)
        expected = encode(value)
        # A request may be sent again.
        for _ in range(2):
            assert join_body(content) == expected
        assert size_of(content) == len(expected)
        parts = list(content)
        assert [content[at] for at in range(len(content))] == parts == list(content[:])


def test_no_copy_of_a_long_string_is_made():
    image = "iVBORw0K" * (1 << 20)
    tracemalloc.start()
    try:
        content = encode_json_late({"image": image, "after": 1})
        assert isinstance(content, LongContent)
        size = sum(map(len, content))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert size == size_of(content) == len(image) + len('{"image":"","after":1}')
    assert json.loads(join_body(content))["after"] == 1
    assert all(one is not two for one, two in pairwise(content))
