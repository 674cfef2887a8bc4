"""Writes and reads the folder of Markdown pages that `markdown` lays out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from memory.export_format import BlockLine, Export, ExportLine, VersionLine
from memory.formats.files import BadSource, Broken
from memory.formats.markdown import BadPage, page_texts, read_page
from memory.formats.records import Bundle

# Of one page that is read.
PAGE_BYTES = 256 << 20


def write_folder(folder: Path, lines: Iterable[ExportLine]) -> int:
    """Write an export into a new or empty folder, and return the number of pages.

    Raises:
        BadSource: the folder holds something, or cannot be written.
    """
    pages: set[str] = set()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadSource(f"{folder} is not empty. Choose a new folder, or empty this one.")
        for name, texts in groupby(page_texts(lines), key=lambda page: page[0]):
            path = folder / name
            if name not in pages:
                pages.add(name)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "a", encoding="utf-8", newline="", opener=_open_private) as page:
                page.writelines(text for _, text in texts)
    except OSError as e:
        raise BadSource(f"{folder} cannot be written: {e.strerror}. Choose another folder.") from e
    return len(pages)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, if it is new."""
    return os.open(path, flags, 0o600)


def read_folder(folder: Path) -> Iterator[Bundle | Broken]:
    """Yield what the pages of a folder hold: the blocks of an agent together, else page by page.

    Links are not followed.

    Raises:
        BadSource: the folder cannot be read, or holds no page.
    """
    pages = sorted(_pages(folder))
    if not pages:
        raise BadSource(f"{folder} holds no page (.md). Give a folder that `memory export` wrote.")
    for parent, folder_pages in groupby(pages, key=lambda path: path.parent):
        if parent.name == "blocks":
            yield from _read_blocks(folder, list(folder_pages))
        else:
            for path in folder_pages:
                yield from _read(folder, path)


def _pages(folder: Path) -> Iterator[Path]:
    for parent, names, files in os.walk(folder):
        names.sort()
        for name in files:
            path = Path(parent, name)
            if name.endswith(".md") and not path.is_symlink():
                yield path


def _read_blocks(folder: Path, paths: list[Path]) -> Iterator[Bundle | Broken]:
    """Yield the blocks of an agent with their versions, which are imported together."""
    lines: list[ExportLine] = []
    for path in paths:
        for record in _read(folder, path):
            if isinstance(record, Broken):
                yield record
            else:
                lines += record.lines
    lines.sort(key=lambda line: isinstance(line, VersionLine))
    if any(isinstance(line, BlockLine) for line in lines):
        yield Bundle(lines)


def _read(folder: Path, path: Path) -> Iterator[Bundle | Broken]:
    """Yield the records of a page. Raises BadSource."""
    place = path.relative_to(folder).as_posix()
    try:
        if (size := path.stat().st_size) > PAGE_BYTES:
            yield Broken(place, f"it has {size} bytes; at most {PAGE_BYTES} are read")
            return
        text = path.read_bytes().decode()
        lines = [line for line in read_page(text) if not isinstance(line, Export)]
    except (BadPage, UnicodeDecodeError) as e:
        yield Broken(place, str(e))
        return
    except OSError as e:
        raise BadSource(f"{path} cannot be read: {e.strerror}.") from e
    if lines:
        yield Bundle(lines)
    elif place != "about.md":
        yield Broken(place, "it holds no record of a memory")
