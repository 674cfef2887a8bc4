"""What a general word may stand for in a question about oneself: "my instrument", the piano. Pure.

The lists below `languages/kinds` are loaded when such a question is first asked in their language.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from memory.search.text_terms import stored_forms

FOLDER = Path(__file__).parent / "languages" / "kinds"
LANGUAGES = frozenset(["en", "de", "fr", "es", "pt", "ru", "ar", "hi", "zh", "ja"])


@cache
def kinds_in(language: str) -> Mapping[str, tuple[str, ...]]:
    """Return words of its kind by each general word of a language, as the index holds them."""
    kinds: dict[str, tuple[str, ...]] = {}
    if language not in LANGUAGES:
        return kinds
    for line in (FOLDER / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        general_words, _, kind_words = line.partition("|")
        kind_forms = [x for word in kind_words.split() for x in stored_forms(word, language)]
        for word in general_words.split():
            for general_form in stored_forms(word, language):
                forms = [*kinds.get(general_form, ()), *kind_forms]
                kinds[general_form] = tuple(dict.fromkeys(forms))
    return kinds
