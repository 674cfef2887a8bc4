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
    plain = fold_text(text)
    for word in FUNCTION_WORDS_CJK:
        plain = plain.replace(word, " ")
    words = WHOLE_WORD.findall(split_cjk(plain))[:MAX_WORDS]
    return {w for w in map(_bare, words) if w not in _common}


def _bare(word: str) -> str:
    """Return a word without accents and other marks of Latin, Greek and Cyrillic letters."""
    if word.isascii() or word[0] >= "\u0530":
        return word
    split = unicodedata.normalize("NFD", word)
    return "".join(c for c in split if not unicodedata.combining(c))


def shares_content(one: str, other: str, others: Collection[str] | None = None) -> bool:
    """Tell whether two texts share a content word, in whatever form.

    others: the content words of the other text, where they are known. Texts that consist of nothing
    but function words share any word.
    """
    words = content_words(one)
    told = content_words(other) if others is None else others
    if not words or not told:
        return _share_plain_word(one, other)
    if not words.isdisjoint(told):
        return True
    return any(is_same_word(a, b) for a in words for b in told)


def _share_plain_word(one: str, other: str) -> bool:
    words = set(WHOLE_WORD.findall(split_cjk(fold_text(one))))
    return not words.isdisjoint(WHOLE_WORD.findall(split_cjk(fold_text(other))))
