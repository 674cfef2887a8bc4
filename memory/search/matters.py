"""Tells which matters of a person's life a text speaks of: where they live, what they work. Pure.

A fact that replaces another one is about the same matter, and often shares no word with it.
"""

from __future__ import annotations

from memory.search.characters import WHOLE_WORD
from memory.search.folding import fold_text
from memory.search.languages.matters import MATTERS, MATTERS_CJK

MAX_CHARACTERS = 4000


def _read(words: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the words, and the beginnings of others, of a list."""
    folded_words = fold_text(words).split()
    return (
        frozenset(word for word in folded_words if not word.endswith("*")),
        tuple(word.rstrip("*") for word in folded_words if word.endswith("*")),
    )


_WORDS = {name: _read(" ".join(by.values())) for name, by in MATTERS.items()}
_CJK = {name: tuple(fold_text(words).split()) for name, words in MATTERS_CJK.items()}


def find_matters(text: str) -> frozenset[str]:
    """Return the names of the matters that a text speaks of."""
    folded_text = fold_text(text[:MAX_CHARACTERS])
    words = WHOLE_WORD.findall(folded_text)
    return frozenset(
        name
        for name, (whole_words, beginnings) in _WORDS.items()
        if any(word in whole_words or word.startswith(beginnings) for word in words)
        or any(part in folded_text for part in _CJK[name])
    )
