"""Reads a whole file: its lines, pages and symbols, within limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from memory.formats.documents.extraction import extract_pages
from memory.formats.documents.file_types import ENCRYPTED, EXTRACTED, UNKNOWN, detect_type
from memory.formats.documents.plain_text import clean_text, decode_text
from memory.formats.documents.symbols import SourceSymbol, find_symbols_apart
from memory.formats.documents.unreadable import Unreadable


class DocumentLimits(msgspec.Struct):
    """What is read of a file. pages, characters: more, and it fails."""

    pages: int = 10_000
    characters: int = 20_000_000


@dataclass(slots=True)
class Document:
    """A file that was read. page_lines: the number of the first line of each page."""

    media_type: str
    lines: list[str]
    page_lines: list[int] = field(default_factory=list)
    symbols: list[SourceSymbol] = field(default_factory=list)


def read_document(name: str, data: bytes, limits: DocumentLimits) -> Document:
    """Read a file. Raises Unreadable with the reason."""
    if not data:
        raise Unreadable("the file is empty")
    media_type = detect_type(name, data)
    if media_type == ENCRYPTED:
        raise Unreadable("the file is encrypted")
    if media_type == UNKNOWN:
        raise Unreadable("this type of file has no text that can be read")
    if media_type in EXTRACTED:
        pages, has_pages = extract_pages(media_type, data)
    else:
        pages = [clean_text(decode_text(data))]
        has_pages = False
    _check(pages, limits)
    document = _lay_out(media_type, pages, has_pages=has_pages)
    if media_type not in EXTRACTED:
        document.symbols = find_symbols_apart(media_type, pages[0])
    return document


def _check(pages: list[str], limits: DocumentLimits) -> None:
    if len(pages) > limits.pages:
        raise Unreadable(f"the file has {len(pages):,} pages; at most {limits.pages:,} are read")
    characters = sum(map(len, pages))
    if characters > limits.characters:
        raise Unreadable(
            f"the file has {characters:,} characters of text; at most {limits.characters:,} are "
            "read"
        )
    if not any(page.strip() for page in pages):
        if len(pages) > 1 or characters:
            raise Unreadable("the file has no text: its pages may be scanned pictures")
        raise Unreadable("the file has no text")


def _lay_out(media_type: str, pages: list[str], *, has_pages: bool) -> Document:
    """Number the lines of all pages."""
    document = Document(media_type, [])
    for page in pages:
        if has_pages:
            document.page_lines.append(len(document.lines) + 1)
        document.lines += page.removesuffix("\n").split("\n")
    return document
