"""A question about oneself finds what is of the kind that it asks for, in ten languages."""

from __future__ import annotations

import pytest

from memory.search.kinds import LANGUAGES, kinds_in
from memory.search.query import query_terms
from memory.search.text_terms import text_words

# A question, what tells it, and a question of nobody's own.
ASKED = {
    "en": ("What is my occupation?", "I am a plumber in Hull", "What is an occupation?"),
    "de": ("Welches Instrument spiele ich?", "Ich übe oft Klarinette", "Was ist ein Instrument?"),
    "fr": ("Quel est mon métier ?", "Je suis boulangère à Metz", "Quel métier est le plus vieux ?"),
    "es": ("¿Qué mascota tengo?", "Mi tortuga se llama Rita", "¿Qué es una mascota?"),
    "pt": ("Qual é o meu esporte?", "Pratico judô há dez anos", "Qual esporte nasceu na China?"),
    "ru": ("Какое у меня заболевание?", "У меня астма с детства", "Что такое заболевание?"),
    "ar": ("ما هي وظيفتي؟", "أنا حلاق في تونس", "ما هي الوظيفة؟"),
    "hi": ("मेरा पालतू जानवर कौन सा है?", "हमारे घर में एक तोता है", "पालतू जानवर क्या होता है?"),
    "zh": ("我的宠物是什么？", "家里有一只鹦鹉", "宠物是什么？"),
    "ja": ("私の楽器は何ですか？", "毎日尺八を吹いています", "楽器とは何ですか？"),
}  # fmt: skip


@pytest.mark.parametrize("language", ASKED)
def test_a_general_word_stands_for_its_kind_where_somebody_asks_about_themselves(language):
    question, telling, others = ASKED[language]
    told = set(text_words(telling).all())

    def shared(query, *, thorough=False):
        terms = query_terms(query, thorough=thorough).terms
        return {form for t in terms if t.is_topical for form in t.words} & told

    assert shared(question)
    assert not shared(others)
    # Who searches names what they look for.
    assert not shared(question, thorough=True)


def test_each_language_has_each_matter_and_others_have_none():
    assert kinds_in("fi") == {}
    assert {language for language in LANGUAGES if len(kinds_in(language)) >= 8} == LANGUAGES
    for language in LANGUAGES:
        assert max(map(len, kinds_in(language).values())) <= 200
