"""Tells which matters of a person's life a text speaks of: where they live, what they work. Pure.

A fact that replaces another one is about the same matter, and often shares no word with it.
"""

from __future__ import annotations

from memory.search.characters import IS_UNSPACED, WHOLE_WORD
from memory.search.folding import fold_text
from memory.search.languages.matters import MATTERS, MATTERS_CJK
from memory.search.word_tables import word_table

MAX_CHARACTERS = 4000
# Whose matters are kept.
CACHED_WORDS = 4096


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
    matters: set[str] = set()
    matters.update(*map(_matters_by_word.__getitem__, WHOLE_WORD.findall(folded_text)))
    if IS_UNSPACED.search(folded_text):
        matters |= {name for name, parts in _CJK.items() if any(x in folded_text for x in parts)}
    return frozenset(matters)


def _matters_of(word: str) -> tuple[str, ...]:
    """Return the matters that one folded word speaks of."""
    return tuple(
        [
            name
            for name, (whole_words, beginnings) in _WORDS.items()
            if word in whole_words or word.startswith(beginnings)
        ]
    )


_matters_by_word = word_table(_matters_of, CACHED_WORDS)
