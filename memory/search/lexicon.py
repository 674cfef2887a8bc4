"""What is common in a language: which language words are of, and which of them tell little. Pure.

The lists below `languages/common` are loaded when a text of their language is first met.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from memory.search.stemming import light_stem, snowball_stem
from memory.search.word_tables import word_table

FOLDER = Path(__file__).parent / "languages" / "common"
LAST_LATIN = "\u024f"
LATIN = ("en", "de", "fr", "es", "pt", "it", "nl", "sv", "pl", "tr")
# By a letter of the script; the first that fits.
SCRIPTS = (("ru", "\u0400", "\u052f"), ("el", "\u0370", "\u03ff"), ("ar", "\u0600", "\u06ff"))
# Their lists hold pairs of characters, then single ones.
UNSPACED = ("zh", "ja", "ko")
DEVANAGARI = ("hi", "\u0900", "\u097f")
# Of the commonest words of a language, by which it is told.
MARKERS = 300
# Words of a text that are looked up.
MAX_MARKERS_READ = 60
# Of the commonest, which a query goes without.
FUNCTION_WORDS = 80
# Of the commonest words, whose other forms are common too.
COMMON_STEMS = 1000
# Letters; of words so short others have the same stem by accident.
MIN_COMMON_STEM = 3
# Of the commonest, which tell nothing even in a question about oneself.
USUAL_WORDS = 400
# Words of English alone; with so many of them a text of plain letters is English.
ENGLISH = frozenset(
    [
        *("the", "and", "of", "is", "with", "this", "that", "have"),
        *("are", "was", "were", "you", "my", "for", "from", "what"),
    ]
)
MIN_ENGLISH = 2
ENGLISH_ALONE = ("en",)
# Of the best language's words, from which another one may be meant.
SIMILAR = 0.6
# A text whose words stand in no list is of another language: of one in a list a third and more do.
# So many words tell, and so many of the commonest make sure that it is of a language with a list.
MIN_LOOKED_UP, LISTED_SHARE, MARKER_SHARE = 8, 0.3, 0.2
# In place of the languages of such a text
UNLISTED = ("",)
# Words whose lists are kept
CACHED_LISTINGS = 4096
# Parts are told by the highest bits of a hash, a signed 64-bit number.
LISTING_PARTS, PART_SHIFT = 8, 61
# Sums for all languages are added up at once, as one number: of how many words mark a language, and
# of their points, which languages share that have the same word.
MARK_BYTES = 4
POINT_BITS = 20
POINT = 2520


def guess_languages(words: Collection[str]) -> tuple[str, ...]:
    """Return the languages that words in Latin letters may be of, the likeliest first.

    The commonest words of each tell; empty without any, `UNLISTED` of a language without a list.
    """
    if len(ENGLISH.intersection(words)) >= MIN_ENGLISH:
        return ENGLISH_ALONE
    markers = _markers()
    looked_up = [*islice(words, MAX_MARKERS_READ)]
    marker_counts = sum(filter(None, map(markers.get, looked_up)))
    fields = array("I", marker_counts.to_bytes(len(LATIN) * MARK_BYTES, sys.byteorder))
    is_of_a_list = max(fields) >> POINT_BITS >= MARKER_SHARE * len(looked_up)
    if not is_of_a_list and _is_unlisted(looked_up):
        return UNLISTED
    points = [field & ((1 << POINT_BITS) - 1) for field in fields]
    if not marker_counts:
        return ()
    minimum_points = SIMILAR * max(points)
    candidates = sorted([(-n, i) for i, n in enumerate(points) if n >= minimum_points])
    return tuple([LATIN[i] for _, i in candidates])


def _is_unlisted(words: Iterable[str]) -> bool:
    """Tell whether too few words in Latin letters stand in the list of any one language."""
    all_counts = sum(map(_listings_by_word.__getitem__, words))
    *list_counts, latin_count = all_counts.to_bytes(len(LATIN) + 1, sys.byteorder)
    if latin_count < MIN_LOOKED_UP:
        return False
    return max(list_counts) < LISTED_SHARE * latin_count


def _listing_languages(word: str) -> int:
    """Return a number with a byte for each language in Latin letters: 1 if its list has a word.

    A last byte counts the words in Latin letters.
    """
    if word[0] > LAST_LATIN:
        return 0
    hashes, languages = _listings()
    code = hash(word)
    i = bisect_left(hashes, code)
    is_listed = i < len(hashes) and hashes[i] == code
    return _spread_bits()[languages[i] if is_listed else 0]


_listings_by_word = word_table(_listing_languages, CACHED_LISTINGS)


def script_language(word: str) -> str:
    """Return the language whose stemmer and list a word of another script gets; "" for none."""
    first_letter = word[0]
    for language, first_code, last_code in (*SCRIPTS, DEVANAGARI):
        if first_code <= first_letter <= last_code:
            return language
    return ""


def is_function_word(word: str, language: str) -> bool:
    """Tell whether a word is one of the commonest, which a query goes without."""
    return _words(language).rank(word) < FUNCTION_WORDS


def is_usual(word: str, language: str) -> bool:
    """Tell whether a word is so common that it tells nothing even in a question about oneself.

    Of single characters those count that are among the commonest of their kind, and of words the
    forms of common ones that have a short stem, which pronouns have.
    """
    rank = _words(language).rank(word)
    if rank < USUAL_WORDS:
        return True
    if language in UNSPACED:
        return len(word) == 1 and rank < _single_rank(language)
    return len(stem_of(word, language)) < MIN_COMMON_STEM and is_usual_form(word, language)


def is_usual_form(word: str, language: str) -> bool:
    """Tell whether a word is a form of one that tells nothing."""
    return _common_stems(language).rank(stem_of(word, language)) < USUAL_WORDS


def is_common(word: str, language: str) -> bool:
    """Tell whether a word, or one that is inflected otherwise, is common in a language."""
    if word in _words(language):
        return True
    stem = stem_of(word, language)
    return len(stem) >= MIN_COMMON_STEM and stem in _common_stems(language)


def stem_of(word: str, language: str) -> str:
    """Return the stem of a word."""
    if language == "ar":
        return light_stem(word)
    return snowball_stem(word, language)


class RankedWords:
    """Words with their ranks, by their hashes: as strings those of all languages take 14 MiB."""

    __slots__ = ("_hashes", "_ranks")

    def __init__(self, words: Sequence[str]) -> None:
        last_to_first = range(len(words) - 1, -1, -1)
        rank_by_hash = dict(zip(map(hash, reversed(words)), last_to_first, strict=True))
        self._hashes = array("q", sorted(rank_by_hash))
        self._ranks = array("H", map(rank_by_hash.__getitem__, self._hashes))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.rank(word) < NO_RANK

    def rank(self, word: str) -> int:
        """Return the place of a word, 0 for the commonest; `NO_RANK` for one that is not here."""
        code = hash(word)
        i = bisect_left(self._hashes, code)
        is_here = i < len(self._hashes) and self._hashes[i] == code
        if is_here:
            return self._ranks[i]
        return NO_RANK


NO_RANK = 0xFFFF


def load_shared_lists() -> None:
    """Load what texts in Latin letters need: 0.1 s of work, so for a thread.

    Words that tell no language are looked up in all of their lists.
    """
    _listings()
    _spread_bits()
    _markers()
    common_words("en")
    for language in LATIN:
        _words(language)
        _common_stems(language)


@cache
def common_words(language: str) -> frozenset[str] | RankedWords:
    """Return the commonest words of a language, or its commonest pairs of characters."""
    # Asked of each word of each text, and English texts are most.
    if language == "en":
        return frozenset(_read(language))
    return _words(language)


@cache
def _words(language: str) -> RankedWords:
    return RankedWords(_read(language))


@cache
def _listings() -> tuple[array[int], array[int]]:
    """Return the hashes of all words in Latin letters, in order, and a bit for each list of one.

    One table for all lists: most words of a text in none of them are looked up once, not ten times.
    """
    bits_by_hash: dict[int, int] = {}
    for i, language in enumerate(LATIN):
        for code in map(hash, _read(language)):
            bits_by_hash[code] = bits_by_hash.get(code, 0) | 1 << i
    hashes, languages = array("q"), array("H")
    # A part at a time: one sort of all would hold Python's lock, and everybody up.
    for part in range(-LISTING_PARTS // 2, LISTING_PARTS // 2):
        codes = sorted([code for code in bits_by_hash if code >> PART_SHIFT == part])
        hashes.extend(codes)
        languages.extend(map(bits_by_hash.__getitem__, codes))
    return hashes, languages


@cache
def _spread_bits() -> Sequence[int]:
    """Return for each set of languages a number with a byte for each of them, and one more."""
    return [
        int.from_bytes([*[bits >> i & 1 for i in range(len(LATIN))], 1], sys.byteorder)
        for bits in range(1 << len(LATIN))
    ]


@cache
def _single_rank(language: str) -> int:
    """Return the place behind the commonest single characters, which follow the pairs."""
    words = _read(language)
    return next((i for i, word in enumerate(words) if len(word) == 1), 0) + USUAL_WORDS


@cache
def _common_stems(language: str) -> RankedWords:
    return RankedWords([stem_of(word, language) for word in _read(language)[:COMMON_STEMS]])


@cache
def _markers() -> dict[str, int]:
    """Return what each word that tells a language adds to a sum for each of them.

    A number of four bytes a language: one mark above `POINT_BITS`, and below its share of a point.
    """
    languages: dict[str, list[int]] = {}
    for i, language in enumerate(LATIN):
        for word in _read(language)[:MARKERS]:
            languages.setdefault(word, []).append(i)
    markers: dict[str, int] = {}
    for word, places in languages.items():
        fields = array("I", bytes(len(LATIN) * MARK_BYTES))
        for i in places:
            fields[i] = 1 << POINT_BITS | POINT // len(places)
        markers[word] = int.from_bytes(fields.tobytes(), sys.byteorder)
    return markers


def _read(language: str) -> list[str]:
    return (FOLDER / f"{language}.txt").read_text(encoding="utf-8").split()
