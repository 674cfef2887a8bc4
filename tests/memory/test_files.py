"""A user's files: what is stored of them, found in them, and left of them."""

from __future__ import annotations

import asyncio
import os
import random
import sys

import pytest
from sqlalchemy import func, select

from memory.errors import BadFileName, FilesFull, FileTooLarge, NotFound, TooManyFiles
from memory.export_format import UserFileChunkLine, UserFileLine, encode_line
from memory.formats.documents import reading
from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.frames import (
    GramsFrame,
    HeadFrame,
    PassagesFrame,
    ReadPassage,
    encode_frame,
)
from memory.formats.documents.reading import ChildDied, FileReader, FileSource
from memory.formats.documents.trigrams import HAS_PAIRS, MAX_NUMBER
from memory.management.files import delete_file, get_file, list_files, list_versions, read_bytes
from memory.management.merging import Merge, merge_users
from memory.management.renaming import rename_user
from memory.retrieval.file_search import FileQuery, FileSearch, GrepQuery, TextQuery
from memory.stores.sql.engine.file_tables import (
    file_chunks,
    file_grams,
    file_passages,
    file_symbols,
    file_versions,
    files,
)
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.owners import erasure
from memory.stores.sql.owners.rename_owner import OwnerRename
from memory.stores.sql.rows import blocks, scopes
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.file_grams import find_places
from memory.stores.sql.rows.file_uploads import FileLimits
from memory.stores.sql.transfer import exporter
from memory.stores.sql.transfer.import_manifest import ImportLimits, ImportManifest
from memory.stores.sql.transfer.importer import import_into
from tests.memory import office_files
from tests.memory.files import SECRET, Library, make_pdf, open_memory, pieces_of

TABLES = (files, file_versions, file_chunks, file_passages, file_symbols, file_grams)
SOURCE = b'''"""A module."""


class TurtleRace:
    """Races."""

    def start_race(self, name):
        return name


def count_turtles():
    return 4
'''

LOCKED = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")


@pytest.fixture
def search(library):
    return FileSearch(library.memory.db)


async def count(db, table):
    query = select(func.count()).select_from(table)
    return await db.read(lambda conn: conn.execute(query).scalar_one())


async def block_of(library, user="ada"):
    def work(conn):
        scope_id = scopes.find(conn, library.scope(user))
        return blocks.all_of(conn, BlockSet(scope_id, {})).get("files")

    return await library.memory.db.read(work)


async def test_a_sentence_of_a_pdf_is_found_with_its_page_and_line(library, search):
    pages = [[f"Nothing of note on page {i}.", "Only filler words."] for i in range(1, 31)]
    pages[16][1] = "The zephyr contract ends in October 2031."
    await library.add("contract.pdf", make_pdf(pages))
    (stored,) = await list_files(library.memory, library.scope())
    assert (stored.status, stored.pages, stored.type) == ("ready", 30, "application/pdf")
    best = (await search.search(library.scope(), FileQuery("when does the zephyr contract end")))[0]
    assert (best.name, best.page) == ("contract.pdf", 17)
    assert best.line_start <= 34 <= best.line_end
    (hit,) = (await search.grep(library.scope(), GrepQuery("ZEPHYR contract"))).hits
    assert (hit.page, hit.line_start) == (17, 34)
    text = await search.open(library.scope(), TextQuery("contract.pdf", page=17, lines=2))
    assert [line for _, line in text.lines][1] == "The zephyr contract ends in October 2031."


async def test_definitions_are_found_by_name(library, search):
    await library.add("race.py", SOURCE)
    hits = await search.search(library.scope(), FileQuery("start_race", kind="symbol"))
    assert [(h.symbol, h.kind, h.line_start) for h in hits] == [("start_race", "function", 7)]
    hits = await search.search(library.scope(), FileQuery("turtles", kind="symbol"))
    assert [h.symbol for h in hits] == ["count_turtles"]


async def test_a_new_version_takes_the_place_of_the_old_one(library, search):
    first, is_new = await library.put("notes.md", b"# Old\nThe walrus sleeps.\n")
    assert is_new
    await library.worker.drain()
    again, is_new = await library.put("notes.md", b"# Old\nThe walrus sleeps.\n")
    assert (again.id, is_new, again.version) == (first.id, False, 1)
    second, is_new = await library.put("notes.md", b"# New\nThe ocelot wakes.\n")
    assert (second.id, is_new, second.version, second.status) == (first.id, True, 2, "received")
    # The old text is found until the new one was read.
    assert (await search.grep(library.scope(), GrepQuery("walrus"))).hits
    await library.worker.drain()
    assert not (await search.grep(library.scope(), GrepQuery("walrus"))).hits
    assert (await search.grep(library.scope(), GrepQuery("ocelot"))).hits
    assert not await search.search(library.scope(), FileQuery("walrus"))
    versions = await list_versions(library.memory, library.scope(), first.id)
    assert [(v.version, v.is_kept) for v in versions] == [(2, True), (1, False)]
    db = library.memory.db
    assert await count(db, file_chunks) == 1
    assert await count(db, file_passages) == 1
    stored = await get_file(library.memory, library.scope(), "notes.md")
    data = b"".join([piece async for piece in read_bytes(library.memory, stored)])
    assert data == b"# New\nThe ocelot wakes.\n"


async def test_who_has_no_file_has_no_block_and_a_deleted_one_leaves_nothing(library, search):
    assert await block_of(library) is None
    stored = await library.add("a.txt", b"alpha\nbeta\n")
    block = await block_of(library)
    assert (block.value, block.read_only) == ("a.txt (2 lines)", True)
    await delete_file(library.memory, library.actor(), stored.id)
    assert await block_of(library) is None
    await library.worker.drain()
    for table in TABLES:
        assert await count(library.memory.db, table) == 0, table.name
    with pytest.raises(NotFound):
        await search.open(library.scope(), TextQuery("a.txt"))


async def test_the_files_of_one_scope_are_not_in_another(library, search):
    stored = await library.add("a.txt", b"the secret word is kumquat\n")
    other = library.scope("bob")
    assert not (await search.grep(other, GrepQuery("kumquat"))).hits
    assert not await search.search(other, FileQuery("kumquat"))
    for ident in (stored.id, "a.txt"):
        with pytest.raises(NotFound):
            await get_file(library.memory, other, ident)


async def test_an_erasure_takes_all_of_the_files_and_counts_them(library):
    await library.add("a.txt", b"alpha beta gamma\n" * 500)
    await library.add("race.py", SOURCE)
    await library.add("b.txt", b"for bob\n", "bob")
    db = library.memory.db
    passages = await count(db, file_passages)
    erased = await erasure.erase(db, SECRET, ("default", "ada"), ())
    assert (erased.counts["files"], erased.counts["file_passages"]) == (2, passages - 1)
    assert await count(db, files) == await count(db, file_passages) == 1


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/b", "a\nb", "a\x00b", "x" * 256, "\ud800"])
async def test_a_name_that_is_no_part_of_a_path_is_refused(library, name):
    with pytest.raises(BadFileName):
        await library.put(name, b"text")


async def test_limits_hold_for_fifty_uploads_at_a_time(library):
    library.limits = FileLimits(max_mib=1, per_user=10, quota_mib=3)
    data = [bytes([65 + i % 26]) * (400 << 10) for i in range(50)]
    results = await asyncio.gather(
        *(library.put(f"{i}.txt", data[i]) for i in range(50)), return_exceptions=True
    )
    stored = [r for r in results if not isinstance(r, BaseException)]
    assert {type(r) for r in results if isinstance(r, BaseException)} == {FilesFull}
    # Of 400 KiB within 3 MiB.
    assert len(stored) == 7
    with pytest.raises(FileTooLarge):
        await library.put("big.txt", b"x" * ((1 << 20) + 1))
    for i in range(3):
        await library.put(f"small {i}", b"x")
    with pytest.raises(TooManyFiles):
        await library.put("one too many", b"x")
    await library.put("0.txt", b"a new version has room")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.txt", b"", "the file is empty"),
        ("blank.txt", b" \n\n", "the file has no text"),
        ("a.exe", b"MZ\x00\x01\x02\x03", "no text that can be read"),
        ("bad.pdf", b"%PDF-1.7 nothing more", "cannot be read"),
        ("locked.docx", LOCKED, "encrypted"),
    ],
)
async def test_what_cannot_be_read_says_why(library, search, name, data, reason):
    await library.add(name, data)
    (stored,) = await list_files(library.memory, library.scope())
    assert stored.status == "failed"
    assert reason in stored.reason
    assert "cannot be read" in (await block_of(library)).value
    assert not (await search.grep(library.scope(), GrepQuery("abc"))).hits


async def test_a_text_is_found_over_the_edge_of_two_passages(library, search):
    words = " ".join(f"word{i}" for i in range(2000))
    await library.add("long.txt", words.encode())
    for i in range(1900):
        needle = f"word{i} word{i + 1} word{i + 2}"
        if i % 97 == 0 or 100 < i < 140:
            (hit,) = (await search.grep(library.scope(), GrepQuery(needle))).hits
            assert hit.line_start == 1


async def test_a_phrase_is_found_in_indexes_of_this_version_and_of_an_earlier_one(library, search):
    chance = random.Random(38)
    words = ["that", "have", "this", "with", "from", "they"]
    lines = [" ".join(chance.choices(words, k=200)) for _ in range(100)]
    lines[70] = "Have this THAT from they with have"
    for name in ("new.txt", "old.txt"):
        await library.add(name, "\n".join(lines).encode())
    query = GrepQuery("have this that from they with have")
    hits = (await search.grep(library.scope(), query)).hits
    assert [(hit.name, hit.line_start) for hit in hits] == [("new.txt", 71), ("old.txt", 71)]

    def plan(conn):
        shown = {row.name: row.shown for row in conn.execute(select(files))}
        scope_id = scopes.find(conn, library.scope())
        texts = [query.pattern]
        return shown, find_places(conn, scope_id, list(shown.values()), texts)

    def forget_pairs(conn):
        old = conn.execute(select(files.c.shown).where(files.c.name == "old.txt")).scalar_one()
        g = file_grams.c
        conn.execute(file_grams.delete().where(g.upload == old, g.gram >= HAS_PAIRS))

    await library.memory.db.write(forget_pairs)
    shown, places = await library.memory.db.read(plan)
    assert len(places[shown["old.txt"]]) > 3 * len(places[shown["new.txt"]])
    assert (await search.grep(library.scope(), query)).hits == hits


async def test_files_that_are_looked_at_together_cost_one_statement(library, search, monkeypatch):
    for number in range(12):
        await library.add(f"{number:02}.txt", f"hay {number}\nneedle {number}\n".encode())
    statements = []
    driver = await library.memory.db.read(lambda conn: type(sql_driver(conn)))
    for name in ("execute", "rows_of_keys", "rows_of_pairs"):

        def run(self, conn, *given, name=name, method=getattr(driver, name)):
            statements.append(name)
            return method(self, conn, *given)

        monkeypatch.setattr(driver, name, run)
    hits = (await search.grep(library.scope(), GrepQuery("needle"))).hits
    assert [(hit.name, hit.line_start) for hit in hits] == [(f"{n:02}.txt", 2) for n in range(12)]
    assert statements.count("rows_of_pairs") == 1
    assert len(statements) <= 2


@pytest.mark.parametrize("pattern", ["needle", "ne", "n.edle"])
async def test_a_line_over_several_passages_is_one_hit_of_as_many_as_are_wanted(
    library, search, pattern
):
    lines = ["needle " * 500 if i % 2 else f"hay {i}" for i in range(120)]
    await library.add("a.txt", "\n".join(lines).encode())
    await library.add("b.txt", b"one needle\n")
    for limit in (1, 20, 59, 60, 61, 100):
        query = GrepQuery(pattern, regex="." in pattern, limit=limit)
        hits = (await search.grep(library.scope(), query)).hits
        expected = [("a.txt", 2 * i + 2) for i in range(60)] + [("b.txt", 1)]
        assert [(hit.name, hit.line_start) for hit in hits] == expected[:limit]


async def test_a_short_text_and_an_expression_are_found_without_the_index(library, search):
    await library.add("a.txt", b"one\nab12\ncd 34\nlast\n")
    for pattern, regex, lines in (
        ("AB", False, [2]),
        (r"\d\d$", True, [2, 3]),
        (r"^l\w+", True, [4]),
        ("(a+)+$", True, []),
    ):
        found = await search.grep(library.scope(), GrepQuery(pattern, regex=regex))
        assert [hit.line_start for hit in found.hits] == lines, pattern


async def test_an_export_brings_files_and_an_import_makes_them_again(library, search):
    await library.add("notes.md", b"# Notes\nThe walrus sleeps.\n")
    await library.add("long.txt", b"the quick brown fox\n" * 40_000)
    await library.add("empty.bin", b"")
    lines = [line async for line in exporter.export(library.memory.db, "default", "ada")]
    assert not [line for line in lines if getattr(line, "label", "") == "files"]
    body = b"".join(encode_line(line) for line in lines)
    # The second time all is there.
    for round_ in range(2):
        manifest = ImportManifest(body, ImportLimits({}))
        await manifest.examine()
        receipt = await import_into(library.memory.db, library.actor("bob"), manifest)
        assert receipt.imported.get("files", 0) == (2 if round_ == 0 else 0)
    await library.worker.drain()
    stored = await list_files(library.memory, library.scope("bob"))
    assert [(f.name, f.status) for f in stored] == [
        ("empty.bin", "failed"),
        ("long.txt", "ready"),
        ("notes.md", "ready"),
    ]
    assert (await search.grep(library.scope("bob"), GrepQuery("walrus"))).hits
    theirs = await list_files(library.memory, library.scope())
    assert [f.sha256 for f in stored] == [f.sha256 for f in theirs]


async def test_an_import_of_other_bytes_is_not_a_file(library):
    data = b"not what was told"
    lines = [
        UserFileLine(name="a.txt", sha256="0" * 64, bytes=len(data)),
        UserFileChunkLine(sha256="0" * 64, position=0, data=data),
        UserFileChunkLine(sha256="1" * 64, position=0, data=data),
    ]
    manifest = ImportManifest(b"".join(map(encode_line, lines)), ImportLimits({}))
    await manifest.examine()
    receipt = await import_into(library.memory.db, library.actor(), manifest)
    assert [one["reason"] for one in receipt.skipped] == [
        "its bytes are not those of its sha256",
        "no such file",
    ]
    assert await list_files(library.memory, library.scope()) == []


async def test_a_merge_brings_the_files_and_takes_no_name_twice(library, search):
    await library.add("notes.md", b"ada says kumquat\n")
    await library.add("same.txt", b"the same in both\n")
    await library.add("notes.md", b"bob says walrus\n", "bob")
    await library.add("same.txt", b"the same in both\n", "bob")
    owners = OwnerRename(SECRET, ("default", "ada"), ("default", "bob"))
    await merge_users(library.memory.db, Merge(owners))
    await library.worker.drain()
    stored = await list_files(library.memory, library.scope("bob"))
    assert [f.name for f in stored] == ["notes (2).md", "notes.md", "same.txt"]
    assert (await search.grep(library.scope("bob"), GrepQuery("kumquat"))).hits
    assert await count(library.memory.db, files) == 3
    assert "notes (2).md (1 line)" in (await block_of(library, "bob")).value


async def test_a_rename_takes_the_files_along(library, search):
    await library.add("notes.md", b"ada says kumquat\n")
    await rename_user(
        library.memory.db, OwnerRename(SECRET, ("default", "ada"), ("default", "eva"))
    )
    (hit,) = (await search.grep(library.scope("eva"), GrepQuery("kumquat"))).hits
    assert hit.name == "notes.md"
    assert await search.search(library.scope("eva"), FileQuery("kumquat"))


KUMQUAT = [
    ("a.docx", office_files.make_docx("Fruit", "The kumquat is ripe.")),
    ("a.xlsx", office_files.make_xlsx(("fruit", "state"), ("The kumquat", "is ripe."))),
    ("a.eml", office_files.MAIL),
    ("a.html", office_files.PAGE),
    ("a.rtf", office_files.RICH),
    ("a.csv", b"fruit,state\nThe kumquat,is ripe.\n"),
    ("a.json", b'{"fruit": "The kumquat is ripe."}'),
    ("utf16.txt", "The kumquat is ripe.".encode("utf-16")),
    ("latin.txt", "Grüße. The kumquat is ripe.".encode("latin-1")),
    # A type is what bytes say.
    ("docx.pdf", office_files.make_docx("The kumquat is ripe.")),
]


async def test_a_file_of_each_type_is_read(library, search):
    for name, data in KUMQUAT:
        await library.put(name, data)
    await library.worker.drain()
    stored = await list_files(library.memory, library.scope())
    assert {f.name: f.reason for f in stored if f.status != "ready"} == {}
    for name, _ in KUMQUAT:
        hits = await search.search(library.scope(), FileQuery("ripe kumquat", file=name))
        assert [hit.name for hit in hits][:1] == [name]


class DyingReader(FileReader):
    """A reader whose child ends at once. starts: how often it was started."""

    starts = 0

    async def _start(self, folder):
        self.starts += 1
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import os; os.kill(os.getpid(), 9)",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


async def test_a_child_that_dies_is_tried_twice_and_blocks_nobody(db):
    memory = open_memory(db)
    await memory.open()
    reader = DyingReader()
    library = Library(memory, reader)
    await library.add("a.txt", b"text\n" * 100_000)
    (stored,) = await list_files(memory, library.scope())
    assert (stored.status, reader.starts) == ("failed", 2)
    assert stored.reason == "the reading ended early, 2 times"
    await memory.close()


@pytest.mark.parametrize(
    "frames",
    [
        [b"\xff\xff\xff\xff"],
        [b"\x00\x00\x00\x02\xc1\xc1"],
        [encode_frame(PassagesFrame([ReadPassage(0, 1, 1, "x", ["x"])]))],
        [encode_frame(HeadFrame("text/plain", 10**12, 1))],
        [encode_frame(GramsFrame([(MAX_NUMBER + 1, b"\x00")]))],
    ],
)
async def test_what_a_child_may_not_say_ends_it(frames):
    said = b"".join(frames).hex()
    reader = FileReader()
    reader._start = lambda folder: asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import sys; sys.stdout.buffer.write(bytes.fromhex('{said}'))",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    source = FileSource("a.txt", 4, pieces_of(b"text"))
    with pytest.raises(ChildDied):
        async with reader.open(source, DocumentLimits()) as answer:
            async for _ in answer:
                pass


async def test_the_child_knows_nothing_of_the_parent_and_has_limits():
    code = "import os, resource; print(sorted(os.environ), resource.getrlimit(resource.RLIMIT_CPU))"
    command = [part.replace(reading.CODE, code) for part in reading.child_command(isolated=False)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=reading._environment()
    )
    printed = (await process.communicate())[0].decode()
    assert not [name for name in os.environ if name.startswith("MNEMOGATE") and name in printed]
    assert "TMPDIR" in printed
