"""Files that mean harm: bombs, ways out of the child, and what no parser ends with soon."""

from __future__ import annotations

from collections.abc import Callable

from tests.memory import office_files
from tests.memory.files import make_pdf

# What one of them would write.
ESCAPED = "/tmp/mnemogate-escaped"
HOSTILE: dict[str, Callable[[], bytes]] = {
    "bomb.docx": lambda: office_files.make_zip(
        {"[Content_Types].xml": "<Types/>", "word/document.xml": b"<a>" + b"\0" * (300 << 20)}
    ),
    "laughs.docx": lambda: office_files.make_docx("&j;", head=office_files.LAUGHS),
    "outside.docx": lambda: office_files.make_docx("x &leak; y", head=office_files.OUTSIDE),
    "climbing.docx": lambda: office_files.make_zip(
        {f"../../../..{ESCAPED}": "x", "word/document.xml": "<x/>"}
    ),
    "endless.pdf": lambda: make_pdf([["x"]]).replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"),
    "deep.json": lambda: b"[" * (1 << 20),
    "deep.html": lambda: b"<html>" + b"<div>" * 200_000,
    "deep.py": lambda: b"(" * 10_000,
}
