"""The words that carry what a text is about, in any language. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from memory.search.characters import WHOLE_WORD
from memory.search.folding import fold_text, is_same_word
from memory.search.languages.function_words import FUNCTION_WORDS, FUNCTION_WORDS_CJK
from memory.search.query import split_cjk
from memory.search.vocabulary import STOP

MAX_WORDS = 400
_common = STOP | frozenset(" ".join(FUNCTION_WORDS.values()).split())


def content_words(text: str) -> set[str]:
    """Return the content words of a text, folded; Chinese and Japanese by pairs of characters."""
    folded_text = fold_text(text)
    for word in FUNCTION_WORDS_CJK:
        folded_text = folded_text.replace(word, " ")
    words = WHOLE_WORD.findall(split_cjk(folded_text))[:MAX_WORDS]
    return {w for w in map(_bare, words) if w not in _common}


def _bare(word: str) -> str:
    """Return a word without accents and other marks of Latin, Greek and Cyrillic letters."""
    if word.isascii() or word[0] >= "\u0530":
        return word
    decomposed = unicodedata.normalize("NFD", word)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def shares_content(
    text: str, compared_text: str, compared_words: Collection[str] | None = None
) -> bool:
    """Tell whether two texts share a content word, in whatever form.

    compared_words: the content words of the other text, where they are known. Texts that consist of
    nothing but function words share any word.
    """
    words = content_words(text)
    other_words = content_words(compared_text) if compared_words is None else compared_words
    if not words or not other_words:
        return _share_plain_word(text, compared_text)
    if not words.isdisjoint(other_words):
        return True
    return any(is_same_word(a, b) for a in words for b in other_words)


def _share_plain_word(text: str, compared_text: str) -> bool:
    words = set(WHOLE_WORD.findall(split_cjk(fold_text(text))))
    return not words.isdisjoint(WHOLE_WORD.findall(split_cjk(fold_text(compared_text))))
