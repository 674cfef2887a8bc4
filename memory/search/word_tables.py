"""What is made of words, looked up for all words of a text at once. Pure.

A call of a function for each word of a text took longer than all else that is done with it:
`map(table.__getitem__, words)` calls one only for words that were not met lately.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

# Of a word that is kept.
WORD_CHARACTERS = 64
# Languages, or sets of languages, whose words are kept.
MOST_TABLES = 64
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class WordTable(dict[str, Value]):
    """What a function makes of words; of a long one it is made anew each time.

    make_room: called before a word is added.
    """

    __slots__ = ("_make", "_make_room")

    def __init__(self, make: Callable[[str], Value], make_room: Callable[[], None]) -> None:
        super().__init__()
        self._make = make
        self._make_room = make_room

    def __missing__(self, word: str) -> Value:
        value = self._make(word)
        if len(word) <= WORD_CHARACTERS:
            self._make_room()
            self[word] = value
        return value


class WordTables(dict[Key, WordTable[Value]]):
    """A table for each language; together they hold so many words at most, then none again."""

    __slots__ = ("_make", "_max_words")

    def __init__(self, make: Callable[[Key, str], Value], max_words: int) -> None:
        super().__init__()
        self._make = make
        self._max_words = max_words

    def __missing__(self, key: Key) -> WordTable[Value]:
        if len(self) >= MOST_TABLES:
            self.clear()
        self[key] = table = WordTable(partial(self._make, key), self._make_room)
        return table

    def _make_room(self) -> None:
        if sum(map(len, self.values())) >= self._max_words:
            for table in list(self.values()):
                table.clear()


def word_table(make: Callable[[str], Value], max_words: int) -> WordTable[Value]:
    """Return a table of what is made of words of any language."""

    def make_any(_: str, word: str) -> Value:
        return make(word)

    return WordTables(make_any, max_words)[""]
