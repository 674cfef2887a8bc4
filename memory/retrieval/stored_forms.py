"""The forms in which SQLite's index stores words, kept for the words that are met again."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from memory.search.postings import Stale

if TYPE_CHECKING:
    from memory.stores.sql.index.stems import Stemmer

# Of the stemmer's own cache.
STEM_BYTES = 256 << 10
# That are kept, and characters of such a word.
MOST_FORMS, FORM_CHARACTERS = 8192, 32


class StoredForms(dict[str, str]):
    """The stored forms of words. A number is stored as it is, and none is kept here."""

    __slots__ = ("_stemmer",)

    def __init__(self) -> None:
        super().__init__()
        # Not loaded before it is needed.
        self._stemmer: Stemmer | None = None

    def __missing__(self, word: str) -> str:
        if _is_number(word):
            return word
        raise KeyError(word)

    def look_up(
        self, words: Collection[str], prefix: str, *, keep_all: bool = False
    ) -> Mapping[str, str]:
        """Return at least the stored forms of these words.

        Raises Stale if one stands for another word too; keep_all: if one is split at all.
        """
        new_words = [word for word in words if word not in self and not _is_number(word)]
        if not new_words:
            return self
        if len(self) + len(new_words) > MOST_FORMS:
            self.clear()
            new_words = [*words]
        extra_forms: dict[str, str] = {}
        for word, tokens in zip(
            new_words, self._stems().tokens(new_words, len(prefix)), strict=True
        ):
            if len(tokens) > 1 and (keep_all or any(t.startswith(prefix) for t in tokens[1:])):
                raise Stale
            # The form of a long word depends on the mark, and so does whether several are one.
            target = self if len(tokens) == 1 and len(word) <= FORM_CHARACTERS else extra_forms
            target[word] = tokens[0]
        if extra_forms:
            return ChainMap(extra_forms, self)
        return self

    def _stems(self) -> Stemmer:
        if self._stemmer is None:
            # Only searches beside Postgres need this tokenizer.
            from memory.stores.sql.index.stems import Stemmer

            self._stemmer = Stemmer(STEM_BYTES)
        return self._stemmer


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()
