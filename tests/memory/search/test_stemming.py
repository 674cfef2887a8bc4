"""What is inflected has one stem, by language."""

from __future__ import annotations

import pytest

from memory.search.stemming import ALGORITHMS, light_stem, snowball_stem, unify_signs


@pytest.mark.parametrize(
    "words",
    [
        "فستق الفستق بالفستق والفستق للفستق",
        "حساسية حساسيتي الحساسية",
        "متحرك المتحركة متحركا",
        "قطة قطتي القطة قطتنا",
        "كِتَاب كتاب الكتاب",
        "معلم معلمون المعلمين معلمات",
    ],
)
def test_arabic_words_with_article_owner_and_ending_have_one_stem(words):
    assert len({light_stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["من", "في", "و", "ال", "ماء", "فستق", "بيت", "ولد"])
def test_a_short_arabic_word_keeps_a_stem(word):
    assert len(light_stem(word)) >= min(len(word), 2)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "haselnuss haselnüsse haselnüssen"),
        ("fr", "noisette noisettes"),
        ("es", "avellana avellanas"),
        ("pt", "tartaruga tartarugas"),
        ("pt", "avelã avelãs"),
        ("ru", "фундук фундука фундуком"),
        ("hi", "मूंगफली मूंगफलियों"),
        ("en", "hazelnut hazelnuts"),
    ],
)
def test_inflected_words_have_one_stem(language, words):
    assert len({snowball_stem(word, language) for word in words.split()}) == 1


def test_every_language_has_a_stemmer():
    for language in ALGORITHMS:
        assert snowball_stem("a", language) is not None


def test_hindi_words_are_written_with_one_sign_for_a_nasal_vowel():
    assert unify_signs("हूँ") == unify_signs("हूं")
    assert unify_signs("फ़र्क") == unify_signs("फर्क")
