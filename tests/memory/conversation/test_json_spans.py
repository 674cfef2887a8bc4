"""Where the objects of a JSON array stand in its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import json_strings
from memory.conversation.json_spans import array_elements

GAPS = st.text(alphabet=" \t\r\n", max_size=4)


@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.text(max_size=4), st.text(max_size=9), max_size=3),
            st.lists(st.text(max_size=5), max_size=3),
        ),
        max_size=5,
    )
)
def test_the_elements_of_an_array_are_found_in_any_json(values):
    text = json.dumps(values).encode()
    assert [json.loads(text[a:b]) for a, b in array_elements(text, 1)] == values


def test_strings_longer_than_the_window_are_passed():
    long = "\\" * json_strings.SCAN_WINDOW_BYTES + '"' * 3
    text = json.dumps([{"a": long}, {"b": 1}]).encode()
    assert [json.loads(text[a:b]) for a, b in array_elements(text, 1)] == [{"a": long}, {"b": 1}]


@given(st.integers(1, 40))
def test_elements_are_found_in_windows_of_any_size(window):
    text = json.dumps([{"a": "x" * 50, "b": [1, {"c": 2}]}, {"d": 'y"' * 20}]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "SCAN_WINDOW_BYTES", window)
        assert [json.loads(text[a:b]) for a, b in array_elements(text, 1)] == json.loads(text)


@given(st.lists(st.tuples(GAPS, st.dictionaries(st.text(), st.text()), GAPS)), st.integers(0, 3))
def test_spans_are_the_same_whether_the_end_of_the_array_is_known(elements, known):
    """Whatever stands between the elements, and wherever one begins to look."""
    texts = [before + json.dumps(value) + after for before, value, after in elements]
    body = '{"messages":[%s],"model":"m"}' % ",".join(texts)
    start, end = body.index("[") + 1, body.rindex("]")
    spans = array_elements(body.encode(), start)
    assert array_elements(body.encode(), start, end) == spans
    assert [json.loads(body.encode()[a:b]) for a, b in spans] == [value for _, value, _ in elements]
    # Behind an element, a comma first.
    if known < len(spans):
        rest = array_elements(body.encode(), spans[known][1], spans[-1][1])
        assert rest == spans[known + 1 :]
