"""A record comes back from its line whatever its strings are, and no part of the line is long."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import long_json
from memory.session import record_lines
from memory.session.record_lines import LONG_STRINGS, SEPARATOR, decode_line, encode_line

TEXTS = st.text(st.sampled_from('ab\t\n"\\\x00\u2028é天😀'), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(long_json, "LONG_CHARACTERS", 4)
    monkeypatch.setattr(record_lines, "SLICE_CHARACTERS", 3)


def line_of(record):
    return b"".join(encode_line(record))


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_a_record_comes_back_as_it_was(record):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG_CHARACTERS", 4)
        patch.setattr(record_lines, "SLICE_CHARACTERS", 3)
        line = line_of(record)
    assert b"\n" not in line
    assert decode_line(line.split(SEPARATOR)) == record


def test_no_part_is_longer_than_a_slice(short):
    parts = list(encode_line({"answers": [{"content": "x" * 100}, {"content": "ab"}]}))
    assert max(map(len, parts[1:])) == len('"xxx"')
    assert parts[1::2] == [SEPARATOR] * 34


def test_a_line_of_an_earlier_version_is_read(short):
    record = {"answers": [{"content": "x" * 100}]}
    assert decode_line([msgspec.json.encode(record)]) == record


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts[:-1],
        lambda parts: [*parts, parts[-1]],
        lambda parts: [*parts[:-1], parts[-1][:-1]],
        lambda parts: [*parts[:-1], b"7"],
        lambda parts: parts[1:],
        lambda parts: [parts[0].replace(LONG_STRINGS.encode(), b"other"), *parts[1:]],
        lambda parts: [],
    ],
)
def test_a_damaged_line_is_told(short, damage):
    parts = line_of({"answers": [{"content": "x" * 10}]}).split(SEPARATOR)
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        decode_line(damage(parts))
