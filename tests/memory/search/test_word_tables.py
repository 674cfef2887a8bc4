"""A table makes of a word what its function makes of it, and holds so many words at most."""

from __future__ import annotations

from memory.search.word_tables import MOST_TABLES, WORD_CHARACTERS, WordTables


def test_a_word_is_made_once_and_a_long_one_each_time():
    made = []

    def double(language, word):
        made.append(word)
        return f"{language}:{word}{word}"

    tables = WordTables(double, 100)
    long_word = "x" * (WORD_CHARACTERS + 1)
    words = ["a", "b", "a", long_word, long_word]
    assert list(map(tables["en"].__getitem__, words)) == [f"en:{w}{w}" for w in words]
    assert list(map(tables["de"].__getitem__, ["a"])) == ["de:aa"]
    assert made == ["a", "b", long_word, long_word, "a"]


def test_all_tables_together_hold_so_many_words_at_most():
    tables = WordTables(lambda language, word: language + word, 10)
    for number in range(1000):
        language = f"l{number % (3 * MOST_TABLES)}"
        assert tables[language][str(number)] == f"{language}{number}"
        assert sum(map(len, tables.values())) <= 10
        assert len(tables) <= MOST_TABLES
