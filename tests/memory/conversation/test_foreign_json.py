"""JSON of others is weighed in short steps before it is decoded."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import foreign_json
from memory.conversation.foreign_json import (
    TooManyValues,
    check_values,
    decode_foreign,
    json_steps,
)

texts = st.text(st.sampled_from('"\\{}[]:, aé\n'), max_size=12)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def count_values(value):
    """Count the values in a value, itself and the names of members too."""
    if isinstance(value, dict):
        return 1 + sum(1 + count_values(v) for v in value.values())
    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


@given(values, st.booleans(), st.sampled_from([8, 13, 64, 1 << 18]))
def test_a_text_is_decoded_where_it_has_few_values_and_refused_where_it_has_many(
    value, ascii_only, step
):
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(foreign_json, "STEP_BYTES", step)
        patched.setattr(foreign_json, "SURE_BYTES", 0)
        many = count_values(value)
        # An empty list or object has a bracket and no value in it.
        assert decode_foreign(text, 2 * many) == value
        assert decode_foreign(text.decode(), 2 * many) == value
        if many > 3:
            with pytest.raises(TooManyValues):
                check_values(text, many // 2 - 1)


@given(values, st.sampled_from([8, 64]))
def test_the_steps_of_a_text_leave_out_no_byte_outside_of_strings(value, step):
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(foreign_json, "STEP_BYTES", step)
        outside = b"".join(b"".join(s.parts[::2]) for s in json_steps(text))
    whole = b"".join(b"".join(s.parts[::2]) for s in json_steps(text))
    assert outside == whole


def test_marks_inside_of_strings_are_no_values():
    text = json.dumps({"text": ",[{:" * 200_000}).encode()
    check_values(text, 10)


def test_a_text_that_is_no_json_ends():
    for text in (b'"' * 100_000, b"\\" * 600_000, b'"\\', b"[" * 200_000):
        with pytest.raises((msgspec.DecodeError, RecursionError)):
            decode_foreign(text)


@pytest.mark.parametrize("text", [b'""', b"{}", b'"a":1', b'"\\""', b'{"role":"user"}'])
def test_a_step_over_a_dense_text_is_short(text):
    """In a thread, others run between two of them: a request takes some twenty."""
    dense = b"[" + b",".join([text] * (1_000_000 // len(text))) + b"]"
    sizes = [sum(map(len, step.parts)) + len(step.parts) - 1 for step in json_steps(dense)]
    assert sum(sizes) > len(dense) - 100_000
    assert max(sizes) <= 1 << 16
