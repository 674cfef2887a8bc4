"""A long JSON text comes apart into its items, however the pieces of it fall."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.formats import json_items
from memory.formats.json_items import NotJson, split_items

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.lists(st.dictionaries(st.text(max_size=9), values, max_size=4), max_size=6)


class Pieces(io.BytesIO):
    """A file that gives few bytes at a time."""

    def __init__(self, raw: bytes, size: int) -> None:
        super().__init__(raw)
        self.size = size

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.size)


def decoded(raw: bytes, size: int = 1 << 20) -> list:
    return [json.loads(item.raw) for item in split_items(Pieces(raw, size))]


@given(objects, st.integers(1, 40), st.booleans(), st.sampled_from([None, 2]))
def test_an_array_comes_apart_into_its_elements(found, size, ascii_only, indent):
    raw = json.dumps(found, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert decoded(raw, size) == found


@given(objects.filter(bool), st.integers(1, 40))
def test_lines_come_apart_into_objects(found, size):
    raw = "\n".join(json.dumps(o, ensure_ascii=True) for o in found).encode()
    assert decoded(raw, size) == found


def test_a_mark_of_the_byte_order_is_passed_over():
    assert decoded(b'\xef\xbb\xbf [{"a": 1}]') == [{"a": 1}]


def test_an_item_is_told_by_its_number_and_byte():
    items = list(split_items(io.BytesIO(b'[{"a":1}, {"b":"}"} ]')))
    assert [(i.number, i.at, i.raw) for i in items] == [(1, 1, b'{"a":1}'), (2, 10, b'{"b":"}"}')]


def test_an_item_in_which_the_text_ends_is_told_as_such():
    *whole, last = split_items(io.BytesIO(b'[{"a":1},{"b":"'))
    assert [i.whole for i in whole] == [True]
    assert (last.number, last.at, last.whole) == (2, 9, False)


def test_an_item_that_is_too_large_is_passed_over_and_the_next_one_read():
    raw = b'[{"a":"' + b"x" * 5000 + b'"},{"b":1}]'
    for size in (7, 1 << 20):
        first, second = split_items(Pieces(raw, size), max_bytes=100)
        assert (first.raw, second.raw) == (None, b'{"b":1}')


@pytest.mark.parametrize("raw", [b"", b"  ", b"PK\x03\x04", b'"text"', b"<html>", b"\xff\xfe[\x00"])
def test_what_is_no_json_of_objects_is_refused(raw):
    with pytest.raises(NotJson, match="does not begin"):
        list(split_items(io.BytesIO(raw)))


def test_a_bracket_too_many_is_told_with_its_place():
    with pytest.raises(NotJson, match="byte 10"):
        list(split_items(io.BytesIO(b'[{"a":1}] ]')))


def test_brackets_without_end_cost_no_more_than_they_are_long():
    raw = b"[" * (3 * json_items.CHUNK)
    (item,) = split_items(io.BytesIO(raw), max_bytes=1000)
    assert (item.raw, item.whole) == (None, False)
