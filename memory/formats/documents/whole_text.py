"""Reads the whole text of a document that is kept nowhere, such as one that was just fetched."""

from __future__ import annotations

from collections.abc import AsyncIterator

from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.file_types import EXTRACTED, detect_type
from memory.formats.documents.frames import PassagesFrame
from memory.formats.documents.reading import FileReader, FileSource

# Pages and mails are text as they are; the others are read by the package of the extra.
PACKED = EXTRACTED - {"text/html", "message/rfc822"}


def is_packed(data: bytes) -> bool:
    """Tell whether bytes are a document that no text editor reads: a PDF, an office file."""
    return detect_type("", data) in PACKED


async def read_text(reader: FileReader, data: bytes, limits: DocumentLimits) -> str:
    """Return the text of a document, read in a child.

    Raises Unreadable, ChildDied.
    """
    parts: list[str] = []
    last_line = 0
    async with reader.open(FileSource("", len(data), _once(data)), limits) as frames:
        async for frame in frames:
            for passage in frame.passages if isinstance(frame, PassagesFrame) else ():
                # Of a long line, several passages hold a part each.
                if parts and passage.line_start > last_line:
                    parts.append("\n")
                parts.append(passage.content)
                last_line = passage.line_end
    return "".join(parts)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
