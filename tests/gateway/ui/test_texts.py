"""How values read: bounded, invisible marks spelt out, lines compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.texts import (
    INVISIBLE,
    TITLE_CHARACTERS,
    ago,
    diff_lines,
    link,
    moment,
    number,
    percent,
    read_call,
    read_calls,
    render_count,
    render_text,
    text_of_content,
    title,
)


@given(st.text(), st.integers(0, 50))
def test_no_shown_text_has_an_invisible_mark_or_is_longer_than_its_limit(text, limit):
    out = render_text(text, limit)
    assert not INVISIBLE.search(out)
    assert len(out) <= limit * len("\u27e8U+10FFFF\u27e9") + len("… (1,000,000 characters in all)")


def test_ordinary_text_is_shown_as_it_is():
    text = "Ünïcode 日本 🙂\n\tindented <b>"
    assert render_text(text) == text
    assert render_text("x" * 10, 4) == "xxxx… (10 characters in all)"
    assert render_text("a\u202eb\x00") == "a\u27e8U+202E\u27e9b\u27e8U+0000\u27e9"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (5, "5 s ago"),
        (125, "2 min ago"),
        (7300, "2 h ago"),
        (90_000, "1 day ago"),
        (200_000, "2 days ago"),
    ],
)
def test_a_time_is_told_by_its_distance(seconds, text):
    assert ago(1e9, 1e9 + seconds) == text


def test_times_and_numbers_read_alike():
    assert ago(None) == "never"
    assert moment("2026-03-01T12:00:00+02:00") == moment(1772359200.0) == "2026-03-01 10:00:00 UTC"
    assert [number(x) for x in (None, 1234567, 2.0, 0.5, 0.00012)] == [
        "–",
        "1,234,567",
        "2",
        "0.50",
        "0.0001",
    ]
    assert [percent(x) for x in (None, 0.256)] == ["–", "26 %"]


def test_a_link_names_what_has_a_value_and_encodes_it():
    assert link("/user", user="a/b ?&", agent="", tenant=None) == "/ui/user?user=a%2Fb+%3F%26"
    assert link("") == "/ui"


def test_a_diff_tells_what_went_and_what_came():
    found = list(diff_lines("one\ntwo", "one\nthree"))
    assert found == [(" ", "one"), ("-", "two"), ("+", "three")]
    assert list(diff_lines(None, "a")) == [("+", "a")]
    ((_, told),) = diff_lines("a\n" * 500, "b")
    assert "too many" in told


def test_lines_that_repeat_are_compared_where_that_is_cheap():
    many = "a\nb\n" * 100
    ((_, told),) = diff_lines(many, f"b\n{many[2:-2]}c\n")
    assert "200 lines became 200; too many lines to compare" in told
    changed = list(diff_lines(many, many.replace("a\nb\n", "a\nc\n", 1)))
    assert [x for x in changed if x[0] != " "] == [("-", "b"), ("+", "c")]
    assert [line for sign, line in changed if sign != "+"] == many.splitlines()


@given(*[st.lists(st.sampled_from("abc"), max_size=12)] * 2)
def test_a_diff_has_every_line_of_both_texts(old, new):
    found = list(diff_lines("\n".join(old), "\n".join(new)))
    assert [line for sign, line in found if sign != "+"] == old
    assert [line for sign, line in found if sign != "-"] == new


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, 3], "a\n[image_url]\n[part]"),
    ],
)
def test_a_message_is_its_text(content, text):
    assert text_of_content(content) == text


def test_a_count_has_its_noun():
    told = [render_count(n, "passage") for n in (0, 1, 2_000)] + [render_count(2, "search")]
    assert told == ["0 passages", "1 passage", "2,000 passages", "2 searches"]


def test_a_time_is_told_in_the_users_zone_which_it_names():
    assert moment(1772359200.0, "Asia/Kathmandu") == "2026-03-01 15:45:00 Asia/Kathmandu"


@given(st.text())
def test_a_title_is_the_beginning_of_a_text_on_one_line(text):
    found = title(text)
    assert len(found) <= TITLE_CHARACTERS + 1
    assert " ".join(text.split()).startswith(found.removesuffix("\u2026"))
    assert bool(found) == bool(text.split())


def test_a_title_ends_with_a_word():
    assert title("word " * 40) == " ".join(["word"] * 12) + "\u2026"
    assert title("a\n b") == "a b"
    assert title("x" * 400) == "x" * TITLE_CHARACTERS + "\u2026"


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_call_can_be_read(value):
    call = read_call("name", value)
    assert [name for name, _ in call.arguments] == (list(value) if isinstance(value, dict) else [])
    read_calls(value)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"query": "tea", "limit": 5, "tags": ["a", "b"]}', "query: tea, limit: 5, tags: a, b"),
        ('{"where": {"city": "Ghent"}, "whole": true}', "where: city: Ghent, whole: true"),
        ('{"where": {"in": {"city": 1}}}', 'where: {"in":{"city":1}}'),
        ("{broken", "{broken"),
        ("[" * 9000, "[" * 9000),
        ("", ""),
    ],
)
def test_a_call_reads_as_its_arguments(arguments, line):
    assert read_call("search", arguments).line == line
    (found,) = read_calls([{"function": {"name": "search", "arguments": arguments}}])
    assert (found.name, found.line, found.raw) == ("search", line, arguments)
