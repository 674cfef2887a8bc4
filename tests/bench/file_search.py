"""`python -m tests.bench.file_search`: how long a search of 100,000 passages in 200 files takes.

Row F2 of the contract of tools. The passages are written as reading would, without the reading;
searches go the way of the tool `file_search`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from memory.retrieval.file_search import FileQuery, FileSearch
from memory.search.query import index_words
from memory.stores.sql.engine import file_tables
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.file_passages import NewFilePassage, UploadPlace, add_passages
from tests import stores
from tests.memory.files import Library, open_memory

FILES, PASSAGES, WORDS = 200, 500, 60
VOCABULARY = 20_000
SEARCHES = 60
MAX_P95_MS = 100.0
SHAPES = {"two rare words": (9_000, 19_000), "two frequent words": (0, 12), "five": (0, 3_000)}


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
            is_file = f.id == upload.id
            conn.execute(file_tables.files.update().where(is_file).values(passages=PASSAGES))

        await library.memory.db.write(write)


async def _measure(search: FileSearch, library: Library, shape: tuple[int, int], count: int) -> str:
    chance, times = random.Random(1), []
    cpu = time.process_time()
    for _ in range(SEARCHES):
        query = " ".join(_word(chance.randint(*shape)) for _ in range(count))
        begun = time.perf_counter()
        await search.search(library.scope(), FileQuery(query))
        times.append((time.perf_counter() - begun) * 1000)
    cpu = (time.process_time() - cpu) * 1000 / SEARCHES
    cuts = statistics.quantiles(times, n=20)
    return f"p50 {cuts[9]:.1f} ms, p95 {cuts[18]:.1f} ms (bar {MAX_P95_MS:g}), CPU {cpu:.1f} ms"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mnemogate-files-") as folder:
        db = stores.database(Path(folder) / "m.db")
        await db.open()
        memory = open_memory(db)
        await memory.open()
        library = Library(memory)
        await _fill(library)
        search = FileSearch(db)
        for name, shape in SHAPES.items():
            print(name, await _measure(search, library, shape, 5 if name == "five" else 2))
        await memory.close()
        await db.close()


if __name__ == "__main__":
    asyncio.run(main())
