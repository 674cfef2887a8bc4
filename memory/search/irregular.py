"""Forms of a query's word that its stem does not give, as the index holds them. Pure."""

from __future__ import annotations

from functools import lru_cache

from memory.search.languages.irregular_words import IRREGULAR
from memory.search.text_terms import QueryWord, text_words
from memory.search.vocabulary import FORMS

_GROUPS: dict[str, list[str]] = {}
for _group in IRREGULAR:
    for _form in _group.split():
        _GROUPS.setdefault(_form, []).append(_group)


def forms_of(word: QueryWord) -> tuple[str, ...]:
    """Return what the index may hold of a word: its stems, and those of its irregular forms."""
    if (forms := FORMS.get(word.word)) is not None:
        return forms
    groups = _GROUPS.get(word.word)
    if groups is None:
        return word.forms
    return tuple(dict.fromkeys([*word.forms, *_indexed(" ".join(groups))]))


@lru_cache(256)
def _indexed(words: str) -> tuple[str, ...]:
    """Return words as they are indexed."""
    return tuple(text_words(words).words)
