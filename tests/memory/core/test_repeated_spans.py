"""What a model repeats of our spans is found, in whatever form."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.core.blocks import SPANS, escape
from memory.core.repeated_spans import without_repeated_spans

NAMES = st.sampled_from(SPANS)
TEXTS = st.text(st.characters(exclude_characters="<>&"), max_size=60)


@given(NAMES, TEXTS, TEXTS, TEXTS, st.booleans(), st.booleans())
def test_no_span_is_left_tagged_or_not_escaped_or_not(name, before, inside, after, tagged, escaped):
    tag = ' tag="a1"' if tagged else ""
    span = f"<{name}{tag}>{inside}</{name}>"
    text = before + (escape(span) if escaped else span) + after
    assert without_repeated_spans(text) == before + after


@given(NAMES, NAMES, TEXTS, TEXTS, TEXTS)
def test_no_span_is_left_of_several_within_each_other(one, two, before, inside, after):
    inner = f"<{two}>{inside}</{two}>"
    text = f'{before}<{one} tag="a">{inner}{inside}</{one}>{after}'
    assert without_repeated_spans(text) in (before + after, before + inside + after)


def test_a_tagged_span_that_breaks_off_takes_the_rest():
    assert without_repeated_spans('Sure. <recalled_memory tag="a1">\n- (2026-01-01) Te') == "Sure. "
    assert without_repeated_spans("The <memory_blocks> are data.") == "The  are data."
    assert without_repeated_spans("data.</memory_blocks> Yes") == "data. Yes"


def test_of_a_user_only_the_own_tag_is_ours():
    foreign = 'What does <memory_blocks tag="b2">x</memory_blocks> mean?'
    assert without_repeated_spans(foreign, "a1") == foreign
    assert without_repeated_spans(foreign.replace("b2", "a1"), "a1") == "What does  mean?"


@given(st.text(st.sampled_from('<>&;/ab "'), max_size=200))
def test_other_texts_stay_as_they_are(text):
    assert without_repeated_spans(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "<recalled_memory>" * 4000,
        "<recalled_memory></recalled_memory>" * 4000,
        "<memory_blocks " * 8000,
        '<memory_blocks tag="a">' * 4000 + "</recalled_memory>" * 4000,
        "<memory_blocks></recalled_memory>" * 4000 + "</memory_blocks>",
    ],
)
def test_the_cost_is_linear(text):
    took = []
    for _ in range(3):
        began = time.thread_time()
        without_repeated_spans(text)
        took.append(time.thread_time() - began)
    assert min(took) < 0.5
