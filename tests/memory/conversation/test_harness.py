"""What programs add is left out, whoever names the elements; what people write is not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import harness
from memory.conversation.harness import HARNESS_ELEMENTS, SHIPPED_HARNESS, Harness

NAMES = st.sampled_from(HARNESS_ELEMENTS)
# Without brackets, and on one line, as somebody's own words may be.
WORDS = st.text(
    st.characters(exclude_characters="<>\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1
).filter(lambda words: words.strip() == words)
ELEMENTS = st.builds(
    lambda name, inside, attributes: f"<{name}{attributes}>{inside}</{name}>",
    NAMES,
    st.text(st.characters(exclude_characters="<>")),
    st.sampled_from(["", ' source="ide"', "\n  a='1'"]),
)


@given(st.lists(ELEMENTS, max_size=3), WORDS, st.lists(ELEMENTS, max_size=3))
def test_elements_around_a_users_words_are_left_out(before, words, behind):
    text = "\n".join([*before, words, *behind])
    assert SHIPPED_HARNESS.own_part(text).strip() == words


@given(WORDS, st.lists(ELEMENTS, min_size=1, max_size=3), WORDS)
def test_elements_on_lines_of_their_own_are_left_out(first, between, last):
    text = "\n".join([first, *between, last])
    assert SHIPPED_HARNESS.own_part(text) == f"{first}\n{last}"


@given(st.lists(WORDS, max_size=4).map("\n".join))
def test_a_text_without_elements_stays_as_it_is(text):
    assert SHIPPED_HARNESS.own_part(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "What does <system-reminder> mean?",
        "Why does it say <system-reminder>x</system-reminder> in the log, and how do I end that?",
        "<p>I like tea</p>",
        "<user_query>I like tea</user_query>",
        "<system-reminders>tea</system-reminders>",
        "I like tea </system-reminder> very much",
    ],
)
def test_what_people_write_about_elements_is_theirs(text):
    assert SHIPPED_HARNESS.own_part(text) == text


def test_a_programs_own_elements_are_the_ones_it_names():
    text = "<mine>today</mine>\nI like tea\n<system-reminder>be brief</system-reminder>"
    assert Harness(["mine"]).own_part(text).startswith("I like tea\n<system-reminder>")
    assert SHIPPED_HARNESS.own_part(text).startswith("<mine>")
    assert Harness([]).own_part(text) == text
    assert Harness(["mine", "system-reminder"]).own_part(text) == "I like tea"


def test_an_element_in_the_middle_that_is_never_closed_hides_nothing():
    text = "one\n<system-reminder>\ntwo\n<git_status>x</git_status>\nthree"
    assert SHIPPED_HARNESS.own_part(text) == "one\n<system-reminder>\ntwo\nthree"
    text = "one\n<git_status>x</git_status> beside\ntwo"
    assert SHIPPED_HARNESS.own_part(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\n" + "<system-reminder>\n" * 100_000 + "</git_status>\nb",
        "a\n" + "<system-reminder>\n" * 100_000 + "</system-reminder> b",
        "a\n" + "<git_status>x</git_status>\n" * 50_000 + "b",
        "a</git_status>" * 100_000 + "b",
        "a\n" + " " * 2_000_000 + "</git_status>b",
        "<git_status>" + "x </" * 500_000 + "</git_status>b",
        "<p>x</p>" * 300_000,
    ],
    ids=["open", "closed late", "many", "closings", "space", "slashes", "markup"],
)
def test_no_text_takes_long(text):
    took = []
    for _ in range(3):
        began = time.thread_time()
        SHIPPED_HARNESS.own_part(text)
        took.append(time.thread_time() - began)
    assert min(took) < 0.25


@given(
    st.lists(st.sampled_from([" ", "\n", "\u3000", "a"])).map("".join),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_white_space_is_passed_over_in_slices_of_any_size(text, at, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "INSPECTED_CHARACTERS", size)
        at = min(at, len(text))
        assert harness._skip_space(text, at) == len(text) - len(text[at:].lstrip())
        assert harness._skip_space_back(text, at, len(text)) == at + len(text[at:].rstrip())


@given(st.lists(ELEMENTS, max_size=3), st.lists(WORDS, max_size=6), st.lists(ELEMENTS, max_size=3))
def test_of_a_long_text_the_beginning_and_the_end_are_looked_at(before, lines, behind):
    words = "\n".join(lines)
    text = "\n".join([*before, words, *behind])
    whole = SHIPPED_HARNESS.own_part(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "EDGE_CHARACTERS", 8)
        edges = SHIPPED_HARNESS.own_edges(text)
    assert edges == (whole if len(whole) <= 16 else f"{whole[:8]}\n{whole[-8:]}")


def test_long_lines_like_tags_are_looked_at_at_the_edges_alone(monkeypatch):
    """On the event loop: to look at all of them took 300 ms."""
    sizes = []
    without_lines = Harness._without_lines
    monkeypatch.setattr(
        Harness,
        "_without_lines",
        lambda elements, text: sizes.append(len(text)) or without_lines(elements, text),
    )
    text = "\n<" * (1 << 20) + "</system-reminder> and"
    SHIPPED_HARNESS.own_edges(text)
    assert sizes == [harness.EDGE_CHARACTERS] * 2
