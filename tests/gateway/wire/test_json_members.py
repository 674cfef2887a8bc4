"""Members of an object are found wherever they stand, in short steps, without decoding the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import json_members
from gateway.wire.json_members import (
    MemberEditor,
    RepeatedMember,
    UnreadableMembers,
    check_names_once,
    find_members,
    read_string,
    value_end,
)
from memory.conversation import foreign_json

BACKSLASH = b"\x5c"
ESCAPED = b'{"a":"' + BACKSLASH * 3 + b'"model' + BACKSLASH + b'":",'
NAMES = (b"model", b"user")
texts = st.text(st.sampled_from('model"\\{}[]:, aé\n'), max_size=12) | st.sampled_from(
    ["model", "user"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def members_of(text):
    """Return the members that are found, decoded."""
    places = find_members(text, NAMES)
    return {n.decode(): json.loads(text[p : value_end(text, p)]) for n, p in places.items()}


@given(
    st.dictionaries(texts, values, max_size=6),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
    st.sampled_from([8, 13, 64, 1 << 18]),
)
def test_the_members_found_are_those_that_a_decoder_finds(body, indent, ascii_only, step):
    text = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(foreign_json, "STEP_BYTES", step)
        patched.setattr(json_members, "FEW_PARTS", 2)
        found = members_of(text)
    assert found == {k: v for k, v in body.items() if k in ("model", "user")}


def test_a_member_that_stands_twice_counts_where_it_stands_last():
    text = b'\xef\xbb\xbf {"model":"a","x":{"model":"b"},"model" : "c","user":"model"}'
    assert members_of(text) == {"model": "c", "user": "model"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'["model"]', "no JSON object"),
        (b"", "no JSON object"),
        (b'{"x":[' + b'{"user":1},' * 10_001 + b"1]}", "more than 10000 places"),
    ],
)
def test_what_cannot_be_found_in_time_is_said(text, words):
    with pytest.raises(UnreadableMembers, match=words):
        find_members(text, NAMES)


@pytest.mark.parametrize("value", [b"", b"}", b"nul", b'"' + b"a" * 70_000 + b'"', b"[" * 60_000])
def test_a_value_that_cannot_be_read_in_time_is_refused(value):
    text = b'{"model":' + value
    with pytest.raises(UnreadableMembers, match="no value of at most 65536 bytes"):
        value_end(text, 9)
    assert read_string(text, 9) is None


@pytest.mark.parametrize(
    ("value", "read"),
    [(b'"m"', "m"), ('"é"'.encode(), "é"), (b"3", None), (b'"\\ud83d"', None), (b'"\xff"', None)],
)
def test_only_a_string_is_read_as_one(value, read):
    assert read_string(b'{"model":' + value + b"}", 9) == read


def test_long_strings_and_white_space_hide_no_member():
    long = b"a\\\\\\" + b'"' + b"b" * (3 << 18)
    text = b'{"x":"' + long + b'","model":"m"' + b" " * (1 << 19) + b"}"
    assert members_of(text) == {"model": "m"}


def edited(text, sizes):
    """Return what an editor makes of a text in pieces of these sizes, repeated."""
    editor, out, at, n = MemberEditor(b"model", b'"alias"'), b"", 0, 0
    while at < len(text):
        size = sizes[n % len(sizes)]
        out += editor.feed(text[at : at + size])
        at, n = at + size, n + 1
    return out + editor.end()


@given(
    st.dictionaries(texts, values, max_size=6),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_a_member_is_replaced_while_the_text_passes_in_any_pieces(body, indent, ascii_only, sizes):
    text = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()
    expected = {**body, **({"model": "alias"} if "model" in body else {})}
    shown = edited(text, sizes)
    assert json.loads(shown) == expected
    if "model" not in body:
        assert shown == text


@pytest.mark.parametrize("pieces", [[1], [7], [1 << 16]])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (ESCAPED + b'"model":"m"}', ESCAPED + b'"model":"alias"}'),
        (b'{"a":["model"],"model"  :  12}', b'{"a":["model"],"model"  :  "alias"}'),
        (b'{"model":"' + b"m" * 5000 + b'"}', None),
        (b'{"model"' + b" " * 5000 + b':"m"}', None),
        (b'{"model":"m', None),
        (b'{"model":', None),
        (b'{"a":"x' + BACKSLASH, None),
        (b"no json", None),
        (b"", None),
    ],
)
def test_what_an_editor_cannot_read_passes_as_it_is(text, shown, pieces):
    assert edited(text, pieces) == (text if shown is None else shown)


def test_a_member_that_is_repeated_is_replaced_a_few_times():
    text = b"{" + b'"model":1,' * 20 + b'"x":1}'
    assert edited(text, [9]).count(b"alias") == json_members.MOST_EDITS
    assert edited(text, [1 << 16]).count(b"alias") == json_members.MOST_EDITS


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"b":{"a":1},"c":[{"a":1},{"a":"\\"a\\":"}]}',
        b'\xef\xbb\xbf{"a":' + b"9" * 5000 + b',"A":1e999,"b":"\\ud800"}',
        b"[]",
    ],
)
def test_members_of_other_objects_and_words_repeat_nothing(text):
    check_names_once(text, lambda name: True)


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"b":{"a":{},"c":1,"a":null}}]']
)
def test_a_member_that_stands_twice_is_named(text):
    with pytest.raises(RepeatedMember, match=r"^a$"):
        check_names_once(text, "a".__eq__)
    check_names_once(text, "b".__eq__)
