"""`python -m tests.bench.file_search`: how long a search of 100,000 passages in 200 files takes.

Rows F1 and F2 of the contract of tools: first a PDF of 3,000 pages is read. The passages are
written as reading would, without the reading; searches go the way of the tools `file_search` and
`file_grep`. Greps look for pieces of the text, and for three frequent words in a row, which stand
in most passages in another order.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from memory.formats.documents.trigrams import GramIndex
from memory.retrieval.file_search import FileQuery, FileSearch, GrepQuery
from memory.search.query import index_words
from memory.stores.sql.engine import file_tables
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.file_grams import add_grams
from memory.stores.sql.rows.file_passages import NewFilePassage, UploadPlace, add_passages
from tests import stores
from tests.memory.files import Library, make_pdf, open_memory

FILES, PASSAGES, WORDS = 200, 500, 60
VOCABULARY = 20_000
PAGES, LINES, MAX_READ_S = 3000, 40, 60
SEARCHES = 60
GREPS = 200
MAX_P95_MS, MAX_REGEX_S = 100.0, 2.0
REGEXES = ("(a+)+$", "w.*q$", "[0-9a-f]+ord")
# How many words, the most frequent and the rarest of them.
SHAPES = {
    "two rare words": (2, 9_000, 19_000),
    "two frequent words": (2, 0, 12),
    "three frequent words": (3, 0, 12),
    "five": (5, 0, 3_000),
}


def _word(number: int) -> str:
    return f"w{number:x}ord"


def _passage(chance: random.Random) -> str:
    """Return words as often as in a language: the n-th about 1/n as often as the first."""
    numbers = (int(VOCABULARY ** chance.random()) - 1 for _ in range(WORDS))
    return " ".join(map(_word, numbers))


async def _fill(library: Library) -> None:
    chance = random.Random(38)
    for number in range(FILES):
        name = f"file_{number}.txt"
        await library.add(name, b"The beginning.\n")
        texts = [_passage(chance) for _ in range(PASSAGES)]

        def write(conn: Any, name: str = name, texts: list[str] = texts) -> None:
            scope_id = scopes.find(conn, library.scope())
            f = file_tables.files.c
            upload = conn.execute(
                file_tables.files.select().where(f.scope_id == scope_id, f.name == name)
            ).one()
            place = UploadPlace(scope_id, upload.shown, name, time.time())
            new = [
                NewFilePassage(at, 0, at, at, text, "", index_words(text))
                for at, text in enumerate(texts, 1)
            ]
            add_passages(conn, place, new)
            grams = GramIndex()
            for text in ("The beginning.", *texts):
                grams.add(text)
            g = file_tables.file_grams
            conn.execute(g.delete().where(g.c.upload == upload.shown))
            add_grams(conn, place.scope_id, place.key, list(grams.encode()))
            is_file = f.id == upload.id
            conn.execute(file_tables.files.update().where(is_file).values(passages=PASSAGES + 1))

        await library.memory.db.write(write)


async def _measure(count: int, look: Callable[[], Awaitable[Any]]) -> str:
    times, cpu = [], time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        await look()
        times.append((time.perf_counter() - begun) * 1000)
    cpu = (time.process_time() - cpu) * 1000 / count
    cuts = statistics.quantiles(times, n=20)
    return f"p50 {cuts[9]:.1f} ms, p95 {cuts[18]:.1f} ms (bar {MAX_P95_MS:g}), CPU {cpu:.1f} ms"


async def _search(library: Library, search: FileSearch) -> None:
    for name, (count, first, last) in SHAPES.items():
        chance = random.Random(1)

        async def look(
            chance: random.Random = chance, count: int = count, first: int = first, last: int = last
        ) -> None:
            query = " ".join(_word(chance.randint(first, last)) for _ in range(count))
            await search.search(library.scope(), FileQuery(query))

        print(f"search, {name}:", await _measure(SEARCHES, look))


def _piece(chance: random.Random) -> str:
    """Return 3 to 30 characters of such a text."""
    text = _passage(chance)
    size = chance.randint(3, 30)
    begin = chance.randrange(len(text) - size)
    return text[begin : begin + size]


def _frequent(chance: random.Random) -> str:
    return " ".join(_word(chance.randint(0, 12)) for _ in range(3))


async def _grep(library: Library, search: FileSearch) -> None:
    scope = library.scope()
    for name, pattern in (("pieces of the text", _piece), ("three frequent words", _frequent)):
        chance = random.Random(7)

        async def look(
            chance: random.Random = chance, pattern: Callable[[random.Random], str] = pattern
        ) -> None:
            await search.grep(scope, GrepQuery(pattern(chance)))

        print(f"grep, {name}:", await _measure(GREPS, look))
    for regex in REGEXES:
        begun = time.perf_counter()
        found = await search.grep(scope, GrepQuery(regex, regex=True))
        seconds, cut = time.perf_counter() - begun, ", cut" * found.is_cut
        print(f"grep, regex {regex}: {seconds:.2f} s{cut} (bar {MAX_REGEX_S:g})")


async def _read_pdf(library: Library, search: FileSearch) -> None:
    chance = random.Random(1)
    pages = [[_passage(chance)[:75] for _ in range(LINES)] for _ in range(PAGES)]
    pages[2000][30] = "The zephyr contract ends in October."
    data = make_pdf(pages)
    begun, cpu = time.perf_counter(), time.process_time()
    await library.add("long.pdf", data, "bob")
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(f"a PDF of {PAGES} pages, {len(data) >> 20} MiB: read in {seconds:.1f} s", end=" ")
    print(f"(bar {MAX_READ_S}), CPU {cpu:.1f} s beside that of the child")
    (hit,) = (await search.grep(library.scope("bob"), GrepQuery("zephyr contract"))).hits
    best, *_ = await search.search(library.scope("bob"), FileQuery("when does the contract end"))
    print(f"found on page {hit.page}, line {hit.line_start}; by words on page {best.page}")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mnemogate-files-") as folder:
        db = stores.database(Path(folder) / "m.db")
        await db.open()
        memory = open_memory(db)
        await memory.open()
        library = Library(memory)
        search = FileSearch(db)
        await _read_pdf(library, search)
        await _fill(library)
        await _search(library, search)
        await _grep(library, search)
        await memory.close()
        await db.close()


if __name__ == "__main__":
    asyncio.run(main())
