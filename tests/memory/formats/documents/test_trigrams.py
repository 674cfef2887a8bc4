"""The trigram index leaves out no passage that holds a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.formats.documents.trigrams import (
    GramIndex,
    common_places,
    decode_places,
    gram_numbers,
    list_places,
)

TEXTS = st.lists(st.text("abcABCß İé終わ \n", max_size=40), min_size=1, max_size=80)


@given(TEXTS, st.text("abcABCß İé終わ", min_size=3, max_size=6))
def test_each_passage_that_holds_a_text_is_among_its_places(texts, needle):
    index = GramIndex()
    for text in texts:
        index.add(text)
    places = dict(index.encode())
    wanted = gram_numbers(needle)
    bitmaps = [decode_places(places.get(number, b"\x00")) for number in wanted]
    candidates = list_places(common_places(bitmaps))
    folded = needle.casefold()
    assert {i for i, text in enumerate(texts) if folded in text.casefold()} <= set(candidates)


def test_few_places_are_a_list_and_many_a_bitmap():
    index = GramIndex()
    for i in range(1000):
        index.add("abc" if i % 2 else "xyz" if i == 500 else "")
    encoded = sorted(places for _, places in index.encode())
    assert [len(places) for places in encoded] == [1 + 1000 // 8 + 1, 5]
    assert [len(list_places(decode_places(places))) for places in encoded] == [500, 1]
