"""Characters as search sees them: words by Unicode's rules, spelt in one way. Pure.

A word is letters and digits with the marks that belong to them: vowel signs of Hindi, points of
Arabic and Hebrew, accents that stand alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# All combining marks (Unicode's categories Mn, Mc, Me) but variation selectors. Letters may stand
# between them here, as they are of a word anyway.
MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a"
    r"\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u07fd\u0816-\u082d"
    r"\u0859-\u085b\u0898-\u08e1\u08e3-\u0963\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63"
    r"\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a"
    r"\u0e47-\u0e4e\u0eb1-\u0ecd\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u0fc6"
    r"\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u17dd\u180b-\u180d"
    r"\u180f-\u193b\u1a17-\u1a1b\u1a55-\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3\u1c24-\u1c37"
    r"\u1cd0-\u1cd2\u1cd4-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\u3099\u309a"
    r"\ua66f-\ua672\ua674-\ua67d\ua69e-\ua6f1\ua802-\ua827\ua82c\ua880-\ua8c5\ua8e0-\ua8f1"
    r"\ua8ff-\ua92d\ua947-\ua953\ua980-\ua9c0\ua9e5-\uaa4d\uaa7b-\uaac1\uaaeb-\uaaef\uaaf5\uaaf6"
    r"\uabe3-\uabea\uabec\uabed\ufb1e\ufe20-\ufe2f"
)
WHOLE_WORD = re.compile(rf"[^\W_]+(?:[{MARKS}]+[^\W_]*)*")
HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
KANA = r"\u3040-\u30ff"
# Scripts written without spaces; Korean words are inflected so much that they count as such too.
CJK = re.compile(rf"[{KANA}{HAN}\uac00-\ud7af]+")
SYLLABIC = re.compile(r"[\u0e01-\u0e4e\u0e81-\u0ecd\u1000-\u109d\u1780-\u17d3]+")
IS_UNSPACED = re.compile(rf"[{KANA}{HAN}\uac00-\ud7af\u0e01-\u0ecd\u1000-\u109d\u1780-\u17d3]")
_SIGNS = (
    r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1059"
    r"\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
    r"\u17b4-\u17d3"
)
_CLUSTER = re.compile(f"[^{_SIGNS}][{_SIGNS}]*")
_FOLDED: dict[int, str | None] = {
    **dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u0640"), None),
    **dict.fromkeys(range(0xFE00, 0xFE10), None),
    **{ord(a): b for a, b in zip("ıİёЁßẞ", ("i", "I", "е", "Е", "ss", "SS"), strict=True)},
}
_IS_FOLDED = re.compile(f"[{''.join(map(chr, _FOLDED))}]")
# Letters that Unicode does not take apart.
_PLAIN: dict[str, str] = {"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ς": "σ"}
# Letters with a mark that are letters of their own in their script.
_OWN_LETTERS = "йїўґ"


def fold_characters(text: str) -> str:
    """Return a text with one spelling of each character: NFKC, without invisible characters.

    A Turkish dotless i is an i, and ё is е: people write both.
    """
    if text.isascii():
        return text
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    if _IS_FOLDED.search(text):
        return text.translate(_FOLDED)
    return text


def fold_accents(word: str) -> str:
    """Return a word in lower case without the accents of Latin and Greek letters."""
    if word.isascii():
        return word
    return word.translate(_accents())


@cache
def _accents() -> dict[int, str]:
    """Return the letters without accents, of Latin, Greek and Cyrillic."""
    table = {ord(letter): base_letter for letter, base_letter in _PLAIN.items()}
    blocks = (range(0xC0, 0x250), range(0x370, 0x530), range(0x1E00, 0x2000))
    for code in (code for block in blocks for code in block):
        decomposed = unicodedata.normalize("NFD", chr(code))
        bare = "".join([c for c in decomposed if not unicodedata.combining(c)])
        if bare != chr(code) and bare and chr(code) not in _OWN_LETTERS:
            table[code] = bare
    return table | dict.fromkeys(range(0x300, 0x370), "")


def pairs_of(run: str) -> list[str]:
    """Return the overlapping pairs of a run of characters; of a single one itself."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def cluster_pairs(run: str) -> list[str]:
    """Return the overlapping pairs of letters with their marks."""
    clusters = _CLUSTER.findall(run)
    return ["".join(clusters[i : i + 2]) for i in range(len(clusters) - 1)] or clusters
