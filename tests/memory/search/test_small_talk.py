"""Small talk in several languages, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.small_talk import is_small_talk
from tests.bench.small_talk import LINES


def test_nearly_all_small_talk_is_recognised_in_each_language():
    for language, lines in LINES.items():
        found = [line for line in lines if is_small_talk(line)]
        assert len(found) >= 0.9 * len(lines), (language, set(lines) - {*found})


@pytest.mark.parametrize(
    "text",
    [
        "What is my dog called?",
        "I like tea",
        "what makes me happy?",
        "Good morning, my name is Ada",
        "Thanks! I live in Lyon.",
        "See you at 5",
        "wie heißt mein Hund?",
        "Guten Morgen, ich wohne in Bremen",
        "¿Dónde vivo?",
        "Hola, soy Ana",
        "我住在哪里？",
        "你好，我叫李明",
        "我喜欢喝茶",
    ],
)
def test_a_word_of_substance_makes_it_something_else(text):
    assert not is_small_talk(text)


@given(st.text())
def test_any_text_can_be_asked_about(text):
    assert not is_small_talk(text + " 7")
