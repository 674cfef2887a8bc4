"""Small talk in several languages, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.small_talk import is_acknowledgement, is_small_talk
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


@pytest.mark.parametrize(
    "text",
    [
        "I see, thank you for telling me.",
        "I see.",
        "Got it!",
        "Verstehe, danke, dass du mir das sagst.",
        "Je vois, merci de me l'avoir dit.",
        "Ya veo, gracias por contármelo.",
        "Entendo, obrigado por me contar.",
        "Понятно, спасибо, что рассказали.",
        "わかりました、教えてくれてありがとうございます。",
        "我明白了,谢谢你告诉我。",
        "فهمت، شكرا لإخباري بذلك.",
        "समझ गया, बताने के लिए धन्यवाद।",
    ],
)
def test_an_assistant_that_only_heard_says_nothing(text):
    assert is_acknowledgement(text)


@pytest.mark.parametrize(
    "text",
    [
        "The river is wide.",
        "The tram is old.",
        "Thank you. For hazelnut allergies, avoid nougat and pralines.",
        "Your flight leaves at nine from gate B.",
        "榛子过敏的人不能吃牛轧糖。",
    ],
)
def test_an_answer_is_no_acknowledgement(text):
    assert not is_acknowledgement(text)
