"""Which language words are of, and which words are common in it."""

from __future__ import annotations

import pytest

from memory.search import lexicon
from memory.search.lexicon import (
    FOLDER,
    LATIN,
    NO_RANK,
    UNLISTED,
    RankedWords,
    common_words,
    guess_languages,
    is_common,
    is_function_word,
    is_usual,
    script_language,
)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("i moved to the harbour last week", "en"),
        ("ich wohne seit einer woche am hafen", "de"),
        ("je suis allergique aux noisettes", "fr"),
        ("tengo alergia a las avellanas y no como queso", "es"),
        ("eu não gosto de coentro na minha comida", "pt"),
        ("non mi piace il formaggio nella minestra", "it"),
        ("ik woon sinds een week bij de haven", "nl"),
        ("jag bor inte i staden längre", "sv"),
        ("nie lubię tego sera ale jem go", "pl"),
        ("bu yıl çok güzel bir şey oldu", "tr"),
    ],
)
def test_a_text_in_latin_letters_tells_its_language(text, language):
    assert guess_languages(text.split())[0] == language


def test_words_that_no_language_has_often_tell_none():
    assert guess_languages(["zxqv", "hazelnuts"]) == ()
    assert guess_languages([]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "minulla on vaikea pähkinäallergia joten en voi syödä mitään mikä sisältää pähkinöitä",
        "súlyos mogyoróallergiám van ezért semmit sem ehetek ami mogyorót tartalmaz",
        "saya punya alergi kacang yang parah jadi saya tidak bisa makan apa pun yang mengandung",
        "tôi bị dị ứng nặng với hạt phỉ nên không thể ăn bất cứ thứ gì",
        "kubectl rollout ingress namespace crashloopbackoff grafana configmap prometheus kubelet",
    ],
)
def test_a_text_of_a_language_without_a_list_is_of_none(text):
    assert guess_languages(text.split()) == UNLISTED


@pytest.mark.parametrize(
    "text",
    [
        "eggs flour hazelnuts sugar butter milk vanilla cream chocolate salt",
        "Eier Mehl Haselnüsse Zucker Butter Milch Vanille Sahne Schokolade Salz",
        "œufs farine noisettes sucre beurre lait vanille crème chocolat sel",
    ],
)
def test_a_list_of_things_is_of_a_language(text):
    assert guess_languages(text.lower().split()) != UNLISTED


@pytest.mark.parametrize(
    ("word", "language"),
    [("орех", "ru"), ("καφές", "el"), ("فستق", "ar"), ("मशीन", "hi"), ("שלום", ""), ("տուն", "")],
)
def test_a_script_tells_the_language(word, language):
    assert script_language(word) == language


@pytest.mark.parametrize(
    ("word", "language"),
    [
        ("hazelnuts", "en"),
        ("wheelchair", "en"),
        ("haselnüsse", "de"),
        ("noisettes", "fr"),
        ("avellanas", "es"),
        ("amendoim", "pt"),
        ("фундук", "ru"),
        ("фундуком", "ru"),
        ("بندق", "ar"),
        ("मूंगफली", "hi"),
    ],
)
def test_what_a_fact_is_about_is_rare_in_its_language(word, language):
    assert not is_common(word, language)


@pytest.mark.parametrize(
    ("word", "language"),
    [
        ("houses", "en"),
        ("years", "en"),
        ("jahren", "de"),
        ("années", "fr"),
        ("casas", "es"),
        ("годами", "ru"),
        ("घर", "hi"),
        ("اليوم", "ar"),
    ],
)
def test_a_common_word_is_common_however_it_is_inflected(word, language):
    assert is_common(word, language)


def test_the_commonest_words_tell_nothing_even_of_oneself():
    assert is_usual("the", "en")
    assert not is_usual("sister", "en")
    assert is_function_word("der", "de")
    assert not is_function_word("hund", "de")


def test_every_list_is_there_and_of_that_size():
    for file in FOLDER.glob("*.txt"):
        words = file.read_text(encoding="utf-8").split()
        assert 4000 <= len(words) <= 16_000
        assert all(word in common_words(file.stem) for word in words)
        assert "zxqvzxqv" not in common_words(file.stem)
    assert {*LATIN, "ru", "el", "ar", "hi", "zh", "ja", "ko"} == {
        file.stem for file in FOLDER.glob("*.txt")
    }


def test_a_rank_is_the_place_in_the_list():
    words = RankedWords(["the", "of", "and", "the"])
    assert [words.rank(w) for w in ("the", "of", "and", "cello")] == [0, 1, 2, NO_RANK]
    assert len(words) == 3
    assert "the" in words
    assert "cello" not in words
    assert "cello" not in RankedWords([])


def test_no_text_in_latin_letters_waits_for_a_list_once_they_are_loaded(monkeypatch):
    lexicon.load_shared_lists()
    monkeypatch.setattr(lexicon, "_read", pytest.fail)

    for words in (["zzxy"], ["ok", "merci", "tack"], ["the", "and", "allergy"]):
        for language in guess_languages(words) or LATIN:
            for word in words:
                is_common(word, language)
                is_usual(word, language)
                is_function_word(word, language)
