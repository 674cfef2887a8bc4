"""One spelling of each character, and words by Unicode's rules."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.search.characters import (
    WHOLE_WORD,
    cluster_pairs,
    fold_accents,
    fold_characters,
    pairs_of,
)


@pytest.mark.parametrize(
    "word", ["मशीन", "हिन्दी", "मूंगफली", "كِتَاب", "שָׁלוֹם", "café", "தமிழ்", "ภาษา", "বাংলা"]
)
def test_a_word_keeps_its_marks(word):
    assert WHOLE_WORD.findall(f"({word}, {word})") == [word, word]


def test_a_mark_belongs_to_its_word_and_nothing_else_does():
    for code in range(0xA0, 0x10000):
        character, category = chr(code), unicodedata.category(chr(code))
        is_in = WHOLE_WORD.fullmatch(f"a{character}") is not None
        is_selector = 0xFE00 <= code <= 0xFE0F
        if category[0] == "M" and not is_selector:
            assert is_in, hex(code)
        elif category[0] in "PSZC" and category not in {"Cn", "Co"}:
            assert not is_in, hex(code)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ﾊﾝﾊﾞｰｸﾞ", "ハンバーグ"),
        ("Ｔｏｋｙｏ", "Tokyo"),
        ("cafe\u0301", "café"),
        ("Ёлка", "Елка"),
        ("İstanbul", "Istanbul"),
        ("ısı", "isi"),
        ("co\u00adop\u200b", "coop"),
        ("كتـــاب", "كتاب"),
        ("Straße", "Strasse"),
    ],
)
def test_two_spellings_of_a_text_are_one(one, other):
    assert fold_characters(one) == fold_characters(other)


@pytest.mark.parametrize(
    ("word", "bare"),
    [
        ("alérgico", "alergico"),
        ("καφές", "καφεσ"),
        ("καφεσ", "καφεσ"),
        ("smørrebrød", "smorrebrod"),
        ("łódź", "lodz"),
        ("й", "й"),
        ("її", "її"),
        ("plain", "plain"),
        ("œuf", "oeuf"),
        ("e\u0301", "e"),
    ],
)
def test_accents_of_latin_and_greek_letters_are_left_out(word, bare):
    assert fold_accents(word) == bare


def test_runs_are_cut_into_overlapping_pairs():
    assert pairs_of("花生酱") == ["花生", "生酱"]
    assert pairs_of("猫") == ["猫"]
    assert cluster_pairs("ภาษา") == ["ภา", "าษ", "ษา"]
    assert cluster_pairs("ที่นี่") == ["ที่นี่"]
    assert cluster_pairs("ก") == ["ก"]


@given(st.text(max_size=60))
def test_folding_twice_changes_nothing_more(text):
    once = fold_characters(text)
    assert fold_characters(once) == once or not unicodedata.is_normalized("NFKC", once)
    assert fold_accents(fold_accents(once)) == fold_accents(once)


def test_marks_beyond_the_basic_plane_do_not_break_anything():
    assert WHOLE_WORD.findall(chr(sys.maxunicode) + "a") == ["a"]
