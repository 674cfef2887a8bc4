"""The trigram index leaves out no passage that holds a text."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from memory.formats.documents.trigrams import (
    HAS_PAIRS,
    MAX_NUMBER,
    NUMBERS,
    GramIndex,
    common_places,
    decode_places,
    gram_numbers,
    list_places,
    pair_numbers,
)

TEXTS = st.lists(st.text("abcABCß İé終わ \n", max_size=40), min_size=1, max_size=80)


def index_of(texts):
    index = GramIndex()
    for text in texts:
        index.add(text)
    return dict(index.encode())


def find_candidates(places, numbers):
    return list_places(common_places(decode_places(places.get(n, b"\x00")) for n in numbers))


@given(TEXTS, st.text("abcABCß İé終わ", min_size=3, max_size=12))
def test_each_passage_that_holds_a_text_is_among_its_places(texts, needle):
    texts = [*texts, f"a{needle.upper()}"]
    places = index_of(texts)
    folded = needle.casefold()
    matches = {i for i, text in enumerate(texts) if folded in text.casefold()}
    assert matches <= set(find_candidates(places, gram_numbers(needle)))
    assert matches <= set(find_candidates(places, {HAS_PAIRS, *pair_numbers(needle)}))


def test_t_f2_pairs_tell_a_phrase_from_its_words_in_another_order():
    chance = random.Random(38)
    words = ["that", "have", "this", "with", "from", "they", "were", "been", "would", "there"]
    texts = [" ".join(chance.choices(words, k=120)) for _ in range(300)]
    texts[7] = f"been {' '.join(words)}"
    places = index_of(texts)
    phrase = "from they were"
    matches = [i for i, text in enumerate(texts) if phrase in text]
    trigrams = gram_numbers(phrase)
    assert len(find_candidates(places, trigrams)) > 250
    candidates = find_candidates(places, trigrams | pair_numbers(phrase))
    assert set(matches) <= set(candidates)
    assert len(candidates) < 100


def test_the_numbers_of_pairs_stand_above_those_of_trigrams():
    assert {n for n in index_of(["A man, a plan, a canal"]) if n >= NUMBERS} == {
        HAS_PAIRS,
        *pair_numbers("a MAN, a plan, a canal"),
    }
    assert min(pair_numbers("a man, a plan")) > HAS_PAIRS
    assert max(pair_numbers(" ".join(map(str, range(9000))))) == MAX_NUMBER
    # A text that is shorter than a pair.
    assert not pair_numbers("a man, ")


def test_few_places_are_a_list_and_many_a_bitmap():
    index = GramIndex()
    for i in range(1000):
        index.add("abc" if i % 2 else "xyz" if i == 500 else "")
    encoded = sorted(places for number, places in index.encode() if number < NUMBERS)
    assert [len(places) for places in encoded] == [1 + 1000 // 8 + 1, 5]
    assert [len(list_places(decode_places(places))) for places in encoded] == [500, 1]
