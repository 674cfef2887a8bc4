"""What is common in a language: which language words are of, and which of them tell little. Pure.

The lists below `languages/common` are loaded when a text of their language is first met.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

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
MIN_COMMON_STEM = 3  # letters; of words so short others have the same stem by accident
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
    return _words(language).rank(word) < FUNCTION_WORDS


def is_usual(word: str, language: str) -> bool:
    """Tell whether a word is so common that it tells nothing even in a question about oneself."""
    return _words(language).rank(word) < USUAL_WORDS


def is_common(word: str, language: str) -> bool:
    """Tell whether a word, or one that is inflected otherwise, is common in a language."""
    if word in _words(language):
        return True
    stem = stem_of(word, language)
    return len(stem) >= MIN_COMMON_STEM and stem in _common_stems(language)


def stem_of(word: str, language: str) -> str:
    """Return the stem of a word."""
    return light_stem(word) if language == "ar" else snowball_stem(word, language)


class RankedWords:
    """Words with their ranks, by their hashes: as strings those of all languages take 14 MiB."""

    __slots__ = ("_hashes", "_ranks")

    def __init__(self, words: Sequence[str]) -> None:
        ranked = sorted(
            {hash(word) & _HASH: i for i, word in reversed([*enumerate(words)])}.items()
        )
        self._hashes = array("Q", [code for code, _ in ranked])
        self._ranks = array("H", [rank for _, rank in ranked])

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.rank(word) < NO_RANK

    def rank(self, word: str) -> int:
        """Return the place of a word, 0 for the commonest; `NO_RANK` for one that is not here."""
        code = hash(word) & _HASH
        i = bisect_left(self._hashes, code)
        is_here = i < len(self._hashes) and self._hashes[i] == code
        return self._ranks[i] if is_here else NO_RANK


_HASH, NO_RANK = (1 << 64) - 1, 0xFFFF


@cache
def common_words(language: str) -> frozenset[str] | RankedWords:
    """Return the commonest words of a language, or its commonest pairs of characters."""
    # Asked of each word of each text, and English texts are most.
    return frozenset(_read(language)) if language == "en" else _words(language)


@cache
def _words(language: str) -> RankedWords:
    return RankedWords(_read(language))


@cache
def _common_stems(language: str) -> RankedWords:
    return RankedWords([stem_of(word, language) for word in _read(language)[:COMMON_STEMS]])


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
