"""Folds what people and models write differently and mean alike. Pure.

A model that copies a sentence "letter by letter" still writes ' for ’, - for –, or another case.
"""

from __future__ import annotations

import re
import unicodedata

from memory.search.characters import CJK

_APOSTROPHES = dict.fromkeys(map(ord, "’‘‛ʼʹ`´′＇"), "'")
_QUOTES = dict.fromkeys(map(ord, "“”„‟«»″＂「」『』‹›"), '"')
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−﹣－"), "-")
_NOTHING = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), None)
_FOLDS = {**_APOSTROPHES, **_QUOTES, **_DASHES, **_NOTHING}
# Few texts have any of these, and a table is looked up for each character.
_IS_FOLDED = re.compile(f"[{re.escape(''.join(map(chr, _FOLDS)))}]")
_EDGES = " \t\n.,;:!?…\"'()[]*_-。，、；：！？।؟،"
MIN_COMMON_LETTERS = 4


def fold_text(text: str) -> str:
    """Return the text in one form: NFKC, case folded, one apostrophe, dash, quote and space."""
    folded_text = _fold_marks(unicodedata.normalize("NFKC", _fold_marks(text)))
    return " ".join(folded_text.casefold().split())


def _fold_marks(text: str) -> str:
    if _IS_FOLDED.search(text):
        return text.translate(_FOLDS)
    return text


def fold_quote(text: str) -> str:
    """Return a quotation folded, without the marks at its ends."""
    return fold_text(text).strip(_EDGES)


def is_same_word(word: str, compared_word: str) -> bool:
    """Tell whether two folded words are forms of one.

    They are equal, or share a beginning of at least four letters and two thirds of the longer.
    """
    if word == compared_word:
        return True
    longer = max(len(word), len(compared_word))
    if min(len(word), len(compared_word)) < MIN_COMMON_LETTERS or CJK.match(word):
        return False
    common_letters = 0
    for a, b in zip(word, compared_word, strict=False):
        if a != b:
            break
        common_letters += 1
    return common_letters >= MIN_COMMON_LETTERS and 3 * common_letters >= 2 * longer
