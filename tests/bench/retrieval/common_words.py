"""Makes the lists of common words below memory/search/languages/common.

By hand, where `wordfreq` (Apache 2.0, its data CC BY-SA 4.0) is installed; nothing else needs it:
`python -m tests.bench.retrieval.common_words`.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "memory" / "search" / "languages" / "common"
SPACED = ("en", "de", "fr", "es", "pt", "it", "nl", "sv", "pl", "tr", "el", "ru", "ar", "hi")
UNSPACED = ("zh", "ja", "ko")
WORDS, PAIRS, PAIRS_WITHIN, CHARACTERS, ENDS = 5000, 6000, 4500, 1200, 1500
CJK = re.compile(r"^[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+$")
KATAKANA = re.compile(r"^[\u30a1-\u30fa\u30fc]{3,}$")


def common_words(language: str) -> list[str]:
    """Return the commonest words, the commonest first."""
    names: list[str] = import_module("wordfreq").top_n_list(language, 2 * WORDS)
    return [w for w in names if not any(c.isdigit() for c in w) and "'" not in w][:WORDS]


def common_pairs(language: str) -> list[str]:
    """Return the commonest pairs of characters, within words and where two words meet.

    Where words meet is estimated by how often words end and begin with the two characters. The
    commonest single characters follow.
    """
    load: Any = import_module("wordfreq").get_frequency_dict
    wordlist = "small" if language == "ko" else "large"
    words = {w: share for w, share in load(language, wordlist).items() if CJK.match(w)}
    within: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for word, share in words.items():
        starts[word[0]] += share
        ends[word[-1]] += share
        for pair in pairwise(word):
            within["".join(pair)] += share
        for character in word:
            characters[character] += share
    every = Counter(within)
    for a, ending in ends.most_common(ENDS):
        for b, starting in starts.most_common(ENDS):
            every[a + b] += ending * starting
    pairs = [p for p, _ in every.most_common(PAIRS)] + [
        p for p, _ in within.most_common(PAIRS_WITHIN)
    ]
    katakana = [w for w, _ in Counter(words).most_common(2 * WORDS) if KATAKANA.match(w)]
    return [
        *dict.fromkeys([*pairs, *katakana]),
        *(c for c, _ in characters.most_common(CHARACTERS)),
    ]


def main() -> None:
    for language in SPACED:
        _write(language, common_words(language))
    for language in UNSPACED:
        _write(language, common_pairs(language))


def _write(language: str, words: list[str]) -> None:
    lines = [" ".join(words[i : i + 20]) for i in range(0, len(words), 20)]
    (FOLDER / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
