"""What is said to be required stands in every match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.formats.documents.regex_literals import required_texts

PART = st.sampled_from(
    ["abc", "de", "f", ".", "(gh)", "(i|j)", "[kl]", "[^m]", r"\d", r"\.", r"\bno", "^", "$",
     "(?:pq)", "rst{2}", "uv{0,1}", "w", "(?i)", "[]x]", "|"]
)  # fmt: skip
COUNT = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,3}"])
PATTERN = st.lists(st.tuples(PART, COUNT), min_size=1, max_size=5).map(
    lambda parts: "".join(part + count for part, count in parts)
)


@given(st.data())
def test_every_match_holds_the_required_texts(data):
    pattern = data.draw(PATTERN)
    try:
        regex = re.compile(pattern)
    except re.error:
        return
    text = data.draw(st.from_regex(regex))
    for required in required_texts(pattern):
        # A search ignores case, as `(?i)` does.
        assert required.casefold() in text.casefold(), pattern


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("foo.*bar", ["foo", "bar"]),
        ("ab?cd", ["a", "cd"]),
        (r"a\.bc", ["a.bc"]),
        ("abc+d", ["abc", "d"]),
        ("(a+)+$", []),
        ("x|yz", []),
        (r"a\x41bcd", []),
        (r"\Qa.b\E", []),
        ("(abc", []),
        ("[abc", []),
    ],
)
def test_what_is_read_of_a_pattern(pattern, texts):
    assert required_texts(pattern) == texts
