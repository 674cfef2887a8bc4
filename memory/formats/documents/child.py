"""The child that reads one file (see `reading`).

It takes a request and the file's bytes from its standard input, and says what the file holds in
frames on its standard output. Its limits are set before it reads a byte.
"""

from __future__ import annotations

import os
import resource
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import BinaryIO

from memory.formats.documents.cutting import CutPassage, cut_passages
from memory.formats.documents.document import Document, read_document
from memory.formats.documents.frames import (
    LENGTH_BYTES,
    NAMED_CHARACTERS,
    TOGETHER,
    EndFrame,
    FailedFrame,
    Frame,
    GramsFrame,
    HeadFrame,
    PassagesFrame,
    ReadPassage,
    ReadRequest,
    ReadSymbol,
    SymbolsFrame,
    decode_request,
    encode_frame,
)
from memory.formats.documents.trigrams import GramIndex
from memory.formats.documents.unreadable import Unreadable
from memory.search.query import index_words

MEMORY_BYTES = 512 << 20
# Threads reserve addresses that they never use.
ADDRESS_BYTES = 4 << 30
CPU_SECONDS = 60
# The package lays its PDF library down in a temporary folder.
FILE_BYTES = 64 << 20
# Of the line in which a definition begins.
SYMBOL_CHARACTERS = 200
GRAMS_TOGETHER = 4096
# Of the passage behind one that ends in the middle of a line: a text may lie in both.
OVERLAP = 200


def set_limits() -> None:
    """Bound what this process may use; none of it can be raised again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))


def answer(request: ReadRequest, data: bytes) -> Iterator[Frame]:
    """Yield what a file holds, or why it cannot be read."""
    try:
        document = read_document(request.name, data, request.limits)
    except Unreadable as e:
        yield FailedFrame(str(e)[:400])
        return
    except (MemoryError, RecursionError):
        yield FailedFrame("the file needs more memory than a reading may use (512 MiB)")
        return
    yield HeadFrame(
        document.media_type,
        sum(map(len, document.lines)) + len(document.lines) - 1,
        len(document.lines),
        document.page_lines,
    )
    yield SymbolsFrame(list(_describe_symbols(document)))
    yield from _passage_frames(document)
    yield EndFrame()


def _describe_symbols(document: Document) -> Iterator[ReadSymbol]:
    for symbol in document.symbols:
        line = document.lines[symbol.line_start - 1].strip()
        page = bisect_right(document.page_lines, symbol.line_start)
        yield ReadSymbol(
            symbol.name,
            symbol.kind,
            symbol.line_start,
            symbol.line_end,
            page,
            line[:SYMBOL_CHARACTERS],
        )


def _passage_frames(document: Document) -> Iterator[Frame]:
    grams = GramIndex()
    names: dict[int, list[str]] = {}
    for symbol in document.symbols:
        names.setdefault(symbol.line_start, []).append(symbol.name)
    batch: list[ReadPassage] = []
    for passage, following in _with_following(document, names):
        grams.add(passage.content + following)
        batch.append(_describe_passage(passage, names))
        if len(batch) == TOGETHER:
            yield PassagesFrame(batch)
            batch = []
    yield PassagesFrame(batch)
    numbers = list(grams.encode())
    for i in range(0, len(numbers), GRAMS_TOGETHER):
        yield GramsFrame(numbers[i : i + GRAMS_TOGETHER])


def _with_following(
    document: Document, names: dict[int, list[str]]
) -> Iterator[tuple[CutPassage, str]]:
    """Yield each passage with what follows it in its last line."""
    previous_passage: CutPassage | None = None
    for passage in cut_passages(document.lines, document.page_lines, names):
        if previous_passage is not None:
            goes_on = previous_passage.line_end == passage.line_start
            yield previous_passage, passage.content[:OVERLAP] if goes_on else ""
        previous_passage = passage
    if previous_passage is not None:
        yield previous_passage, ""


def _describe_passage(passage: CutPassage, names: dict[int, list[str]]) -> ReadPassage:
    defined = [
        name
        for line in range(passage.line_start, passage.line_end + 1)
        for name in names.get(line, ())
    ]
    return ReadPassage(
        passage.page,
        passage.line_start,
        passage.line_end,
        passage.content,
        list(index_words(passage.content)),
        " ".join(dict.fromkeys(defined))[:NAMED_CHARACTERS],
    )


def main(source: BinaryIO, write: Callable[[bytes], object]) -> None:
    """Read one request, and answer it."""
    size = int.from_bytes(source.read(LENGTH_BYTES), "big")
    request = decode_request(source.read(size))
    for frame in answer(request, source.read(request.size)):
        write(encode_frame(frame))


def run() -> None:
    """Answer one request on the standard streams."""
    set_limits()
    # What a parser prints must not stand between the frames.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(sys.stdin.buffer, output.write)
    output.flush()
