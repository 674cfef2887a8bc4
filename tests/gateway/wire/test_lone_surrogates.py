from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import lone_surrogates
from gateway.wire.chat import decode, encode
from gateway.wire.lone_surrogates import join_halves, without_halves
from memory.conversation import json_strings, long_json
from memory.conversation.steps import pausing_with

HALVES = st.text('\ud83d\ude00\\"a\ud800\udfffü', max_size=9)
TEXTS = st.text(st.characters(), max_size=20) | HALVES
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_what_is_read_and_sent_on_has_the_halves_that_came(value, indented):
    text = json.dumps(value, indent=1 if indented else None).encode()
    assert json.loads(encode(decode(text))) == json.loads(text)


@given(VALUES)
def test_a_thread_that_works_in_steps_writes_the_same(value):
    value = decode(json.dumps(value).encode())
    at_once = encode(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_json, "LONG_CHARACTERS", 6)
        patch.setattr(long_json, "SLICE_CHARACTERS", 4)
        with pausing_with(lambda: None):
            assert encode(value) == at_once


def test_a_very_long_string_is_written_in_steps():
    steps = []
    with pausing_with(lambda: steps.append(1)):
        encode({"item": {"arguments": "a" * (4 * long_json.LONG_CHARACTERS)}})
    assert len(steps) >= 4


@given(TEXTS, TEXTS)
def test_different_texts_stay_different(one, other):
    read = [decode(json.dumps(text).encode()) for text in (one, other)]
    same = json.loads(json.dumps(one)) == json.loads(json.dumps(other))
    assert (read[0] == read[1]) == same
    for text in read:
        # What a store takes.
        text.encode()


def test_halves_that_meet_are_the_whole_character():
    halves = decode(b'["Hi \\ud83d", "\\ude00!"]')
    assert (
        join_halves([{"role": "assistant", "content": "".join(halves)}])[0]["content"] == "Hi 😀!"
    )
    assert encode("".join(halves)) == b'"Hi \\ud83d\\ude00!"'
    for content in (None, "Hi", [{"type": "text", "text": "Hi"}]):
        assert join_halves([{"content": content}]) == [{"content": content}]


def test_a_text_that_leaves_has_the_replacement_character():
    assert without_halves(decode(b'"a\\ud83d \\ude00b"')) == "a� �b"
    assert without_halves("a😀b") == "a😀b"


@given(HALVES, st.integers(1, 9))
def test_parts_may_end_within_a_stand_in(text, size):
    read = decode(json.dumps(text).encode())
    slices = [read[at : at + size] for at in range(0, len(read), size)]
    parts = [lone_surrogates.encode_plain(s)[1:-1] for s in slices]
    assert b"".join(lone_surrogates.with_escapes_in(parts)) == encode(read)[1:-1]


@pytest.mark.parametrize("data", [b'"\\ud83x"', b'"\\uD8"', b'"\\ud83'])
def test_what_is_no_escape_is_no_half(data):
    lone_surrogates.with_stand_ins(data)
    with pytest.raises(msgspec.DecodeError):
        decode(data)


@given(
    st.lists(
        st.sampled_from([b"x", b"\\n", b"\\u0041", b"\\ud83d\\ude00", b"\\ud83d", b"\\uDE00"])
    ),
    st.integers(7, 40),
)
def test_halves_of_pairs_are_found_in_steps_of_any_size(pieces, window):
    data = b'"' + b"".join(pieces) + b'"'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lone_surrogates, "_SCAN_WINDOW_BYTES", window)
        patch.setattr(json_strings, "SEARCH_STEP_BYTES", window)
        sound = lone_surrogates.has_no_lone_surrogates(data)
        read = lone_surrogates.with_stand_ins(data)
    assert sound == (read == data)
    assert lone_surrogates.has_no_lone_surrogates(read)
    assert json.loads(lone_surrogates.with_escapes(read)) == json.loads(data)


@given(
    st.lists(st.sampled_from(["x", "é", lone_surrogates.OPENING, "\ud83d", "\udc00", "\udfff"])),
    st.integers(lone_surrogates.STAND_IN_BYTES + 1, 40),
)
def test_halves_are_written_in_steps_of_any_size(pieces, window):
    data = lone_surrogates.with_stand_ins(json.dumps("".join(pieces)).encode())
    written = lone_surrogates.STAND_IN.sub(lone_surrogates._escape, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lone_surrogates, "_SCAN_WINDOW_BYTES", window)
        assert lone_surrogates.with_escapes(data) == written


def test_halves_that_meet_in_a_part_are_joined_and_other_parts_stay():
    halves = "".join(decode(b'["Hi \\ud83d", "\\ude00!"]'))
    for part in ({"text": halves}, {"source": {"text": halves}}):
        joined = json.loads(json.dumps(part).replace(json.dumps(halves), '"Hi 😀!"'))
        assert join_halves([{"content": [{"text": "a"}, part]}]) == [
            {"content": [{"text": "a"}, joined]}
        ]
    plain = {"content": [{"type": "text", "text": "fine", "annotations": []}]}
    assert join_halves([plain])[0] is plain
