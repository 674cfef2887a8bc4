"""Times, ids and texts of other programs, in whatever shape they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.formats import records
from memory.formats.records import BrokenItem, name_of, own_id, text_of_parts, time_of
from memory.search.query import iso


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (1_700_000_000, 1_700_000_000.0),
        (1_700_000_000.25, 1_700_000_000.25),
        (1_700_000_000_000, 1_700_000_000.0),
        (1_700_000_000_000_000_000, 1_700_000_000.0),
        ("2026-03-01T10:00:00.500Z", 1_772_359_200.5),
        *((bad, None) for bad in (None, True, -5, 0, "soon", "9" * 99, [], float("nan"))),
        (float("inf"), None),
        (10**400, None),
    ],
)
def test_a_time_is_read_in_seconds_or_less_and_as_text(value, at):
    assert time_of(value) == at


@given(st.integers() | st.floats() | st.text(max_size=70))
def test_a_time_is_one_that_can_be_told_or_none(value):
    at = time_of(value)
    assert at is None or iso(at)


def test_an_id_keeps_the_digits_of_a_uuid_and_others_are_apart_by_what_they_are_in():
    ident = "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert own_id("msg", ident) == "msg_0f8fad5bd9cb469fa16570867728950e"
    assert own_id("msg", "message-0", "a") == own_id("msg", "message-0", "a")
    assert own_id("msg", "message-0", "a") != own_id("msg", "message-0", "b")
    assert len(own_id("msg", "x" * 10_000)) == 36


def test_a_conversation_without_a_name_has_one_by_what_it_holds():
    assert name_of("p", "c1", {}) == "p:c1"
    assert name_of("p", None, {"a": 1}) == name_of("p", 7, {"a": 1}) != name_of("p", "", {"a": 2})
    assert len(name_of("p", "x" * 1000, {})) <= 256


def test_parts_are_joined_and_what_is_no_talk_is_left_out():
    parts = [
        "plain",
        {"type": "text", "text": "typed"},
        {"content_type": "audio_transcription", "text": "spoken"},
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "name": "search"},
        {"type": "text", "text": 7},
        None,
    ]
    assert text_of_parts(parts) == "plain\ntyped\nspoken\n[image]"
    assert text_of_parts("plain") == "plain"
    assert text_of_parts({"a": 1}) == ""


def test_what_is_longer_than_allowed_is_refused_with_both_numbers():
    with pytest.raises(BrokenItem, match="8388609 characters; at most 8388608"):
        records.check_text("x" * (records.SAID + 1))
    with pytest.raises(BrokenItem, match="at most 200000"):
        records.passage("x" * (records.CONTENT + 1))
    with pytest.raises(BrokenItem, match="empty"):
        records.passage(" ")
