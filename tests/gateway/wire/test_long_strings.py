"""Long strings are read piece by piece, and are what a decoder makes of the whole text."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import long_strings
from gateway.wire.chat import decode, decode_weighed
from gateway.wire.lone_surrogates import with_stand_ins
from gateway.wire.long_strings import (
    CutText,
    cut_long_strings,
    place_in_text,
    read_in_steps,
    restore,
    takes_long,
)
from memory.conversation.steps import pausing_with

PIECES = ["\\", '"', "\n", "\t", "é", "字", "😀", "\u2028", "a", "\x00", "/", "u", "long-"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=80).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True, scope="module")
def short_steps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_strings, "PIECE_BYTES", 16)
        patch.setattr(long_strings, "WINDOW_BYTES", 24)
        patch.setattr(long_strings, "BLANK_BYTES", 4)
        yield


@given(VALUES, st.booleans(), st.sampled_from([None, 1, 9]))
def test_a_text_says_the_same_read_in_steps(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert read_in_steps(text, msgspec.json.decode) == msgspec.json.decode(text) == value


@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 9]))
def test_a_cut_text_is_restored_part_by_part(values, indent):
    text = json.dumps(values, indent=indent).encode()
    cut, spans = cut_long_strings(text)
    parts = msgspec.json.decode(cut, type=list[msgspec.Raw])
    restored = [msgspec.json.decode(restore(bytes(part), text, spans)) for part in parts]
    assert restored == values


@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 9]))
def test_a_place_of_the_cut_text_is_told_in_the_text(values, indent):
    text = json.dumps(values, indent=indent).encode()
    cut, spans = cut_long_strings(text)
    begin = 0
    for value in msgspec.json.decode(cut, type=list[msgspec.Raw]):
        begin = cut.index(bytes(value), begin)
        end = begin + len(bytes(value))
        part = text[place_in_text(begin, spans) : place_in_text(end, spans)]
        assert part == part.strip()
        assert json.loads(part) == json.loads(restore(cut[begin:end], text, spans))
        begin = end


@given(st.lists(st.sampled_from([b"\\\\", b'\\"', b"\\n", b"\\u00e9", b"\\ud83d\\ude00", b"x"])))
def test_no_escape_is_cut(escapes):
    text = b'{"a":"%b"}' % b"".join(escapes)
    assert read_in_steps(text, msgspec.json.decode) == msgspec.json.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        b'["%b' % (b"\\\\" * 40),
        b'["%b\\"]' % (b"\\\\" * 40),
        b'["%b\\q"]' % (b"\\n" * 40),
        b'["%b\\ud83d"]' % (b"\\n" * 40),
        b'["%b\xff"]' % (b"\\n" * 40),
        b'["%b" "x"]' % (b"\\n" * 40),
        b'["%b\n"]' % (b"x" * 40),
        b'["%b\x00%b"]' % (b"x" * 40, b"y" * 40),
        b'["\x1f%b"]' % (b"x" * 40),
        b'["%b\xff"]' % (b"x" * 40),
        b'["%b\xed\xa0\x80"]' % (b"x" * 40),
        b'["%b\xc3"]' % (b"x" * 40),
    ],
)
def test_what_is_no_json_is_refused_alike(text):
    for read in (msgspec.json.decode, lambda data: read_in_steps(data, msgspec.json.decode)):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            read(text)


def test_only_texts_that_take_long_are_read_so(monkeypatch):
    assert not takes_long(b'"\\n"' * 100)
    monkeypatch.setattr(long_strings, "LONG_BYTES", 100)
    monkeypatch.setattr(long_strings, "MANY_ESCAPES", 100)
    assert not takes_long(b'"%b"' % (b"x" * 200))
    text = b'{"text":"%b","other":["\\ud83d"]}' % (b"\\n" * 200)
    assert takes_long(text)
    monkeypatch.setattr(long_strings, "VERY_LONG_BYTES", 100)
    assert takes_long(b'"%b"' % (b"x" * 200))
    half = msgspec.json.decode(with_stand_ins(b'"\\ud83d"'))
    for read in (decode, decode_weighed):
        assert read(text) == {"text": "\n" * 200, "other": [half]}


STARTS = ["data:image/png;base64,", "data:text/plain;base64,", "", "字"]
DATA_URLS = st.tuples(st.sampled_from(STARTS), st.integers(0, 200)).map(
    lambda drawn: drawn[0] + "iVBO" * drawn[1]
)
LONG_VALUES = st.recursive(
    DATA_URLS | TEXTS | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(LONG_VALUES, max_size=5), st.randoms())
def test_a_text_is_translated_without_its_long_strings(values, rng):
    """Parts may change their order, be left out and be told twice."""
    text = json.dumps(values, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_strings, "CUT_BYTES", 100)
        patch.setattr(long_strings, "KEPT_BYTES", 30)
        cut = CutText(text)
        whole = CutText(text, uncut=True)
    assert whole.cut_text == text
    places = [rng.randrange(len(values)) for _ in values]
    found = msgspec.json.decode(cut.cut_text)
    translated = msgspec.json.encode([found[place] for place in places])
    restored = cut.restore(translated)
    data = restored if isinstance(restored, bytes) else b"".join(restored)
    assert json.loads(data) == [values[place] for place in places]


def test_a_long_image_is_cut_and_a_long_text_file_is_not():
    image = "data:image/png;base64," + "iVBO" * (1 << 19)
    text = json.dumps([image, image.replace("image/png", "text/plain")]).encode()
    cut = CutText(text)
    assert len(cut.cut_text) < len(text) * 0.6
    assert msgspec.json.decode(cut.cut_text)[0].startswith("data:image/png;base64,iVBO")
    assert b"".join(cut.restore(cut.cut_text)) == text


def test_white_space_between_values_is_left_out_and_that_of_strings_stays():
    text = b' [ %b "%b", \r\n%b 1 ]%b' % (b"\n" * 99, b" " * 99, b" \t" * 99, b" " * 99)
    cut, spans = cut_long_strings(text)
    assert len(cut) < 150
    assert sum(end - begin for begin, end in spans.values()) > 380
    assert read_in_steps(text, msgspec.json.decode) == [" " * 99, 1]


def test_a_long_string_is_put_back_in_steps():
    body = json.dumps({"messages": [{"content": 'a"\n' * 700_000}]}).encode()
    cut_text, spans = long_strings.cut_long_strings(body)
    steps = []
    with pausing_with(lambda: steps.append(1)):
        assert long_strings.restore(cut_text, body, spans) == body
    assert len(steps) > 3
