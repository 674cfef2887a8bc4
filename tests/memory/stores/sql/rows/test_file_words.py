"""Where a word can stand nowhere, it is not looked for; what a search finds stays the same."""

from __future__ import annotations

import random

from memory.retrieval.file_search import FileQuery, FileSearch
from memory.stores.sql.rows import file_words
from tests.memory.files import Library, open_memory

NAMES = [
    "Invoices 2026.txt",
    "Zürich-Reise.md",
    "parseHttpHeaders.txt",
    "東京の旅.txt",
    "running_notes v2 2026-05-08.txt",
]
WORDS = [
    "invoice",
    "invoices",
    "invoiced",
    "2026",
    "Zurich",
    "zürich",
    "reise",
    "reisen",
    "parse",
    "headers",
    "parseHttpHeaders",
    "http",
    "東京",
    "旅",
    "run",
    "runs",
    "running",
    "notes",
    "note",
    "v2",
    "May",
    "8",
    "user",
    "I",
    "me",
    "my",
    "you",
    "tea",
    "relational",
]
CODE = b"def run_invoice(user):\n    return user\n"


async def fill(library):
    chance = random.Random(7)
    for name in NAMES:
        text = "\n\n".join(" ".join(chance.choices(WORDS, k=400)) for _ in range(3))
        await library.add(name, text.encode())


async def test_a_search_finds_the_same_as_one_that_looks_everywhere(db, monkeypatch):
    memory = open_memory(db)
    await memory.open()
    library, search = Library(memory), FileSearch(db)
    await fill(library)
    chance = random.Random(8)
    queries = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(24)]
    asked = [FileQuery(q, chance.choice(["", "", NAMES[0]]), limit=20) for q in queries]
    looks, may_hold = [], file_words.FileWords.may_hold

    def note(words, lookup):
        looks.append((lookup.words[0], lookup.column, may_hold(words, lookup)))
        return looks[-1][-1]

    async def compare():
        hits = [await search.search(library.scope(), query) for query in asked]
        assert sum(map(bool, hits)) > 20
        with monkeypatch.context() as patch:
            patch.setattr(file_words.FileWords, "may_hold", lambda words, lookup: True)
            assert hits == [await search.search(library.scope(), query) for query in asked]

    await compare()
    with monkeypatch.context() as patch:
        patch.setattr(file_words.FileWords, "may_hold", note)
        await search.search(library.scope(), FileQuery("invoiced relational 2026"))
    held = {(word, column) for word, column, holds in looks if holds and column != "body"}
    assert held == {("invoiced", "prev"), ("2026", "prev")}
    assert {column for _, column, _ in looks} == {"body", "speaker", "prev", "day"}
    # Now the names of definitions count too.
    await library.add("billing.py", CODE)
    await compare()
    await memory.close()
