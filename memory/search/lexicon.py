"""What is common in a language: which language words are of, and which of them tell little. Pure.

The lists below `languages/common` are loaded when a text of their language is first met. In memory
they are hashes, in a twentieth of the room that sets of words take: some 30 KB a language.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from zlib import crc32

from memory.search.stemming import light_stem, snowball_stem

FOLDER = Path(__file__).parent / "languages" / "common"
LATIN = ("en", "de", "fr", "es", "pt", "it", "nl", "sv", "pl", "tr")
# By a letter of the script; the first that fits.
SCRIPTS = (("ru", "\u0400", "\u052f"), ("el", "\u0370", "\u03ff"), ("ar", "\u0600", "\u06ff"))
DEVANAGARI = ("hi", "\u0900", "\u097f")
MARKERS = 300  # of the commonest words of a language, by which it is told
MAX_MARKERS_READ = 60  # words of a text that are looked up
FUNCTION_WORDS = 80  # of the commonest, which a query goes without
COMMON_STEMS = 1000  # of the commonest words, whose other forms are common too
USUAL_WORDS = 400  # of the commonest, which tell nothing even in a question about oneself
# Words of English alone; with so many of them a text of plain letters is English.
ENGLISH = frozenset(
    [
        *("the", "and", "of", "is", "with", "this", "that", "have"),
        *("are", "was", "were", "you", "my", "for", "from", "what"),
    ]
)
MIN_ENGLISH, ENGLISH_ALONE = 2, ("en",)
SIMILAR = 0.6  # of the best language's words, from which another one may be meant
CACHED_WORDS = 4096  # of which is known whether they are common
UNLISTED = sys.maxsize  # the rank of a word that is on no list


class RankedWords:
    """Words by how common they are, kept as 32-bit hashes: one word in a million is mistaken."""

    def __init__(self, words: Iterable[str]) -> None:
        ranks: dict[int, int] = {}
        for rank, word in enumerate(words):
            ranks.setdefault(crc32(word.encode()), rank)
        self._hashes = array("I", sorted(ranks))
        self._ranks = array("H", [ranks[key] for key in self._hashes])

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, word: str) -> bool:
        return self.rank(word) != UNLISTED

    def rank(self, word: str) -> int:
        """Return the place of a word, 0 for the commonest; UNLISTED for one that is missing."""
        key = crc32(word.encode())
        at = bisect_left(self._hashes, key)
        is_listed = at < len(self._hashes) and self._hashes[at] == key
        return self._ranks[at] if is_listed else UNLISTED


def guess_languages(words: Collection[str]) -> tuple[str, ...]:
    """Return the languages that words in Latin letters may be of, the likeliest first.

    Only the commonest words of each tell; empty without any.
    """
    if len(ENGLISH.intersection(words)) >= MIN_ENGLISH:
        return ENGLISH_ALONE
    markers, points = _markers(), dict.fromkeys(LATIN, 0.0)
    for word in islice(words, MAX_MARKERS_READ):
        languages = markers.get(word)
        if languages is not None:
            share = 1 / len(languages)
            for language in languages:
                points[language] += share
    best = max(points.values())
    if not best:
        return ()
    likely = [language for language in LATIN if points[language] >= SIMILAR * best]
    return tuple(sorted(likely, key=lambda language: -points[language]))


def script_language(word: str) -> str:
    """Return the language whose stemmer and list a word of another script gets; "" for none."""
    first = word[0]
    for language, least, most in (*SCRIPTS, DEVANAGARI):
        if least <= first <= most:
            return language
    return ""


def is_function_word(word: str, language: str) -> bool:
    """Tell whether a word is one of the commonest, which a query goes without."""
    return common_words(language).rank(word) < FUNCTION_WORDS


def is_usual(word: str, language: str) -> bool:
    """Tell whether a word is so common that it tells nothing even in a question about oneself."""
    return common_words(language).rank(word) < USUAL_WORDS


@lru_cache(CACHED_WORDS)
def is_common(word: str, language: str) -> bool:
    """Tell whether a word, or one that is inflected otherwise, is common in a language."""
    if word in common_words(language):
        return True
    return stem_of(word, language) in _common_stems(language)


def stem_of(word: str, language: str) -> str:
    """Return the stem of a word."""
    return light_stem(word) if language == "ar" else snowball_stem(word, language)


@cache
def common_words(language: str) -> RankedWords:
    """Return the commonest words of a language, or its commonest pairs of characters."""
    return RankedWords(_read(language))


@cache
def _common_stems(language: str) -> RankedWords:
    return RankedWords(stem_of(word, language) for word in _read(language)[:COMMON_STEMS])


@cache
def _markers() -> dict[str, tuple[str, ...]]:
    """Return the languages of each word that tells one."""
    markers: dict[str, tuple[str, ...]] = {}
    for language in LATIN:
        for word in _read(language)[:MARKERS]:
            markers[word] = (*markers.get(word, ()), language)
    return markers


def _read(language: str) -> list[str]:
    return (FOLDER / f"{language}.txt").read_text(encoding="utf-8").split()
