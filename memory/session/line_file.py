"""Files of lines of any length, read and written in pieces: no line is in memory as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

PIECE_BYTES = 1 << 20
LINE_END = b"\n"
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class FileLine:
    """Where a line stands in a file, without its end, and its digest.

    The file may be replaced meanwhile: what was opened keeps its content.
    """

    file: BinaryIO
    begin: int
    end: int
    digest: bytes

    def pieces(self) -> Iterator[bytes]:
        """Yield the line's bytes."""
        at = self.begin
        while at < self.end:
            self.file.seek(at)
            block = self.file.read(min(PIECE_BYTES, self.end - at))
            if not block:
                return
            at += len(block)
            yield block

    def split(self, separator: bytes) -> Iterator[bytes]:
        """Yield what stands between the separators, each of one byte."""
        beginning: list[bytes] = []
        for block in self.pieces():
            head, *parts = block.split(separator)
            beginning.append(head)
            for part in parts:
                yield b"".join(beginning)
                beginning = [part]
        yield b"".join(beginning)


def digest_of(line: bytes) -> bytes:
    """Return the digest that a line has in a file."""
    return blake2b(line, digest_size=DIGEST_BYTES).digest()


def find_lines(file: BinaryIO) -> Iterator[FileLine]:
    """Yield the lines of a file but empty ones, up to its end as it is now."""
    begin = 0
    at = 0
    digest = blake2b(digest_size=DIGEST_BYTES)
    size = file.seek(0, os.SEEK_END)
    while at < size:
        file.seek(at)
        block = file.read(min(PIECE_BYTES, size - at))
        if not block:
            break
        *complete_lines, remainder = block.split(LINE_END)
        for part in complete_lines:
            digest.update(part)
            end = at + len(part)
            if end > begin:
                yield FileLine(file, begin, end, digest.digest())
            at = begin = end + 1
            digest = blake2b(digest_size=DIGEST_BYTES)
        digest.update(remainder)
        at += len(remainder)
    if at > begin:
        yield FileLine(file, begin, at, digest.digest())


def append_lines(path: Path, parts: Iterable[bytes]) -> None:
    """Append lines, given in parts, with fsync: all of them, or none if that fails."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != LINE_END
        try:
            if torn:
                write_parts(fd, [LINE_END])
            write_parts(fd, parts)
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                # Half a line would damage the next one too.
                os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def rewrite_lines(path: Path, stays: Callable[[FileLine], bool]) -> None:
    """Leave only some lines in a file; without any, remove the file."""
    part = path.with_name(f".{path.name}.part")
    with contextlib.ExitStack() as files:
        lines: list[FileLine] = []
        with contextlib.suppress(FileNotFoundError):
            file = files.enter_context(path.open("rb", buffering=0))
            lines = [line for line in find_lines(file) if stays(line)]
        if lines:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                write_parts(fd, ended_lines(lines))
                os.fsync(fd)
            finally:
                os.close(fd)
    if lines:
        part.replace(path)
        return
    path.unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def join_parts(parts: Iterable[bytes]) -> bytes:
    """Return parts in one piece, without a list of them beside it."""
    buffer = BytesIO()
    for part in parts:
        buffer.write(part)
    return buffer.getvalue()


def ended_lines(lines: Iterable[FileLine]) -> Iterator[bytes]:
    """Yield lines with their ends, in pieces."""
    for line in lines:
        yield from line.pieces()
        yield LINE_END


def write_parts(fd: int, parts: Iterable[bytes]) -> None:
    """Write all of it, a large part uncopied. Raises OSError."""
    for part in parts:
        remainder = memoryview(part)
        while remainder:
            remainder = remainder[os.write(fd, remainder) :]
