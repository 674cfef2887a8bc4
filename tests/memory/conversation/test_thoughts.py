"""Thoughts are no text of an answer, a summary or an item, however a server leaves them in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation.thoughts import (
    SEARCH_STEP_CHARACTERS,
    answer_text,
    spoken_text,
    without_thoughts,
)

PAIRS = [
    ("<think>", "</think>"),
    ("<Think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
]


@pytest.mark.parametrize(("begin", "end"), PAIRS)
def test_thoughts_are_no_text(begin, end):
    assert without_thoughts(f"{begin}PLAN {{}} [1]\n\nPLAN{end}\n\nParis.") == "Paris."
    assert without_thoughts(f"  \n{begin}\nPLAN\n{end}Paris.") == "Paris."
    assert without_thoughts(f"{begin}PLAN, cut") == ""
    assert without_thoughts(f"First.\n{begin}PLAN{end}\nThen.") == "First.\n\nThen."
    assert without_thoughts(f"First.\n{begin}PLAN, cut") == "First."


@pytest.mark.parametrize(("begin", "end"), PAIRS[:-1])
def test_thoughts_whose_opening_tag_stood_in_the_prompt_are_no_text(begin, end):
    assert without_thoughts(f"PLAN\nPLAN\n{end}\n\nParis.") == "Paris."
    assert without_thoughts(f"PLAN {end}\nParis.") == "Paris."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris.",
        "I think <b>so</b>.",
        "The tag <think> begins it, and </think> ends it.",
        "Write `</think>`",
        "Use it:\n```xml\n<think>\nplan\n</think>\n```\nand so on",
        '{"operations": [{"text": "uses <think> tags", "quote": "I use <think> tags"}]}',
        "Hello.<|end|>",
        "x </thinker>",
    ],
)
def test_what_only_speaks_of_thoughts_stays(text):
    assert without_thoughts(text) == text


@given(st.text())
def test_a_users_text_is_theirs_and_an_answer_never_grows(text):
    assert spoken_text({"role": "user", "content": text}) == text
    assert len(without_thoughts(text)) <= len(text)


@given(st.lists(st.sampled_from([p for pair in PAIRS for p in pair] + ["a", "\n", "```", " "])))
def test_any_run_of_marks_is_read_and_read_again_is_the_same(pieces):
    once = without_thoughts("".join(pieces))
    assert len(once) <= len("".join(pieces))


def test_the_parts_of_an_answer_that_are_reasoning_are_left_out_too():
    parts = [{"type": "thinking", "text": "PLAN"}, {"type": "text", "text": "<think>P</think>Yes"}]
    assert answer_text({"content": parts}) == "Yes"
    assert spoken_text({"role": "assistant", "content": parts}) == "Yes"
    assert answer_text({"content": None, "reasoning_content": "PLAN"}) == ""


def test_long_texts_cost_linear_time():
    began = time.process_time()
    for piece in ("<think>", "</think>", "<think>\n", " \n", "<|channel|>", "```\n", "x</think>y "):
        without_thoughts(piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 3


@pytest.mark.parametrize("before", range(SEARCH_STEP_CHARACTERS - 12, SEARCH_STEP_CHARACTERS + 2))
def test_a_thought_in_a_long_text_is_seen_wherever_a_step_of_the_search_ends(before):
    text = f"{'a' * (before - 1)}\n<think>PLAN</think>Paris."
    assert without_thoughts(text).endswith("a\nParis.")
