"""Stems of words: by Snowball, and of Arabic words by light stemming. Pure.

Arabic: light10 (Larkey, Ballesteros and Connell, Light stemming for Arabic information retrieval,
2007), with the endings for "my", "our" and "your". Snowball's Arabic stemmer takes the first letter
off many words that it finds without a prefix, and so parts what belongs together.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

ALGORITHMS = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "pt": "portuguese",
    "it": "italian",
    "nl": "dutch",
    "sv": "swedish",
    "pl": "polish",
    "tr": "turkish",
    "ru": "russian",
    "el": "greek",
    "hi": "hindi",
}
# Of each language.
CACHED_STEMS = 2000
_POINTS = re.compile(r"[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed]")
_LETTERS = str.maketrans({"أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ة": "ه", "ؤ": "و"})
_ARTICLES = ("وال", "بال", "كال", "فال", "ال", "لل")
# Letters that are written together with the next word.
AR_PREPOSITIONS = "بلكف"
_OWNERS = ("كم", "هم", "نا", "ها", "ي", "ك", "ه")
_ENDINGS = ("ا", "ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي")
# Letters.
MIN_STEM = 3
_HINDI_SIGNS = str.maketrans({"ँ": "ं", "\u093c": None})


@cache
def snowball(language: str) -> Any:
    """Return Snowball's stemmer of a language."""
    import Stemmer

    return Stemmer.Stemmer(ALGORITHMS[language], CACHED_STEMS)


def snowball_stem(word: str, language: str) -> str:
    """Return the stem of a word; of Portuguese also without the s of a plural in ãs, ões or éis."""
    stem: str = snowball(language).stemWord(word)
    if language == "pt" and stem.endswith("s") and len(stem) > MIN_STEM:
        return stem[:-1]
    return stem


def unify_signs(word: str) -> str:
    """Return a Hindi word with one sign for a nasal vowel, and without dots below."""
    return word.translate(_HINDI_SIGNS)


def light_stem(word: str) -> str:
    """Return the stem of an Arabic word: without points, article, conjunction and endings."""
    bare = _POINTS.sub("", word).translate(_LETTERS)
    if bare.startswith("و") and len(bare) > MIN_STEM:
        bare = bare[1:]
    for article in _ARTICLES:
        if bare.startswith(article) and len(bare) - len(article) >= MIN_STEM - 1:
            bare = bare[len(article) :]
            break
    for owner in _OWNERS:
        if bare.endswith(f"ت{owner}") and len(bare) - len(owner) >= MIN_STEM:
            bare = bare[: -len(owner) - 1]
            break
    for ending in _ENDINGS:
        if bare.endswith(ending) and len(bare) - len(ending) >= MIN_STEM - 1:
            bare = bare[: -len(ending)]
    return bare
