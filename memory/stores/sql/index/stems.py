"""The form in which SQLite's full-text index stores a word, for an index elsewhere.

SQLite's own tokenizer is asked, so that both stores find the same words by construction.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence

from memory.cache import Cache

# Some 50,000 words.
CACHE_BYTES, ENTRY_BYTES = 24 << 20, 400
# Words tokenized at once.
ASKED = 500
# No suffix that Porter's stemmer takes has one of these last (An algorithm for suffix stripping,
# 1980).
UNSTEMMED = frozenset("abfhjkopqvwxz0123456789")


def is_own_stem(word: str) -> bool:
    """Tell whether a word is certainly stored as it is."""
    return word.isascii() and word.isalnum() and word == word.lower() and word[-1] in UNSTEMMED


class Stemmer:
    """Tokenizes words as `porter unicode61` does. One for a process; safe in threads.

    most: bytes of its cache.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._lock = threading.Lock()
        self._token_cache: Cache[tuple[int, str], tuple[str, ...]] = Cache(
            max_bytes, ENTRY_BYTES, lambda name, tokens: 4 * (len(name[1]) + sum(map(len, tokens)))
        )
        self._db: sqlite3.Connection | None = None

    def tokens(self, words: Sequence[str], prefix_length: int) -> list[tuple[str, ...]]:
        """Return the tokens of each word: one, unless it has characters that SQLite splits at.

        prefix_length: length of what stands before each word in the index (see
        `search.query.scope_mark`): a very long word is stored as it is.
        """
        prefix = f"s{'b' * (prefix_length - 2)}x"
        with self._lock:
            tokens_by_word = {word: self._token_cache.get((prefix_length, word)) for word in words}
            new_words = [word for word, tokens in tokens_by_word.items() if tokens is None]
            for i in range(0, len(new_words), ASKED):
                some_words = new_words[i : i + ASKED]
                unsure = [word for word in some_words if not is_own_stem(word)]
                asked_tokens = self._ask([prefix + w for w in unsure])
                new_tokens = {
                    **{word: (word,) for word in some_words},
                    **{
                        w: (t[0][prefix_length:], *t[1:])
                        for w, t in zip(unsure, asked_tokens, strict=True)
                    },
                }
                for word, tokens in new_tokens.items():
                    self._token_cache.put((prefix_length, word), tokens)
                tokens_by_word |= new_tokens
        return [tokens_by_word[word] or () for word in words]

    def _ask(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        db = self._db or self._open()
        tokens: list[list[str]] = [[] for _ in words]
        try:
            db.executemany("INSERT INTO w (rowid, t) VALUES (?, ?)", enumerate(words))
            for doc, term in db.execute("SELECT doc, term FROM v ORDER BY doc, offset"):
                tokens[doc].append(term)
        finally:
            # What is left would be found among the next words.
            db.execute("INSERT INTO w (w) VALUES ('delete-all')")
        return [tuple(word_tokens) for word_tokens in tokens]

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        db.execute("CREATE VIRTUAL TABLE w USING fts5(t, content='', tokenize='porter unicode61')")
        db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(w, 'instance')")
        self._db = db
        return db
