"""The stems of a text's words, for texts that are ranked without an index. Pure."""

from __future__ import annotations

from memory.search.identifiers import HUMP, PARTS, WORD
from memory.search.stemming import snowball_stem


def stems_of(text: str, language: str = "en") -> list[str]:
    """Return the stems of a text's words in their order, those of identifiers in their parts."""
    return [
        snowball_stem(part.casefold(), language)
        for word in WORD.findall(text)
        for part in (PARTS.findall(word) if HUMP.search(word) else (word,))
    ]
