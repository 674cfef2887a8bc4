"""Tells the type of a file from its bytes. Its name says only which kind of text it is. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

# In which the beginning of a text is looked at.
HEAD_BYTES: Final = 4096
PLAIN = "text/plain"
UNKNOWN = "application/octet-stream"
OFFICE = "application/vnd.openxmlformats-officedocument."
# A member of a zip archive, by which an office file is recognised.
ZIP_MEMBERS: dict[bytes, str] = {
    b"word/document.xml": OFFICE + "wordprocessingml.document",
    b"xl/workbook.xml": OFFICE + "spreadsheetml.sheet",
    b"ppt/presentation.xml": OFFICE + "presentationml.presentation",
}
# What such an archive says in its first member, which is not compressed.
ZIP_TYPES: dict[bytes, str] = {
    b"application/vnd.oasis.opendocument.text": "application/vnd.oasis.opendocument.text",
    b"application/epub+zip": "application/epub+zip",
}
ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
ENCRYPTED = "application/encrypted"
# Types that need the package of the extra.
EXTRACTED = frozenset(
    (
        "application/pdf",
        "application/rtf",
        "text/html",
        "message/rfc822",
        *ZIP_MEMBERS.values(),
        *ZIP_TYPES.values(),
    )
)
# Kinds of text, by the ending of the name.
TEXT_ENDINGS: dict[str, str] = {
    **dict.fromkeys((".md", ".markdown"), "text/markdown"),
    **dict.fromkeys((".csv", ".tsv"), "text/csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "application/json"),
    **dict.fromkeys((".py", ".pyi"), "text/x-python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "text/javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "text/x-typescript"),
    ".tsx": "text/x-tsx",
    ".go": "text/x-go",
    ".rs": "text/x-rust",
    ".java": "text/x-java",
    **dict.fromkeys((".c", ".h"), "text/x-c"),
}
HEADER = re.compile(
    rb"(?:Received|From|To|Return-Path|MIME-Version|Date|Subject|Message-ID|Delivered-To|"
    rb"Content-Type): ?\S",
    re.IGNORECASE,
)
BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def detect_type(name: str, data: bytes) -> str:
    """Return the media type of a file, `UNKNOWN` for one that cannot be read."""
    head = data[:HEAD_BYTES]
    if b"%PDF-" in head[:1024]:
        return "application/pdf"
    if head.startswith(b"PK\x03\x04"):
        return _zip_type(data)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        if ENCRYPTED_PACKAGE in data:
            return ENCRYPTED
        return UNKNOWN
    if head.startswith(b"{\\rtf"):
        return "application/rtf"
    return _text_type(name, head)


def _zip_type(data: bytes) -> str:
    if data[30:38] == b"mimetype":
        for type_mark, media_type in ZIP_TYPES.items():
            if data[38:].startswith(type_mark):
                return media_type
    for member, media_type in ZIP_MEMBERS.items():
        if member in data:
            return media_type
    return UNKNOWN


def _text_type(name: str, head: bytes) -> str:
    is_wide = head.startswith(BOMS[1:])
    if not is_wide and CONTROLS.search(head):
        return UNKNOWN
    begin = head.removeprefix(BOMS[0]).lstrip()[:256].lower()
    ending = PurePosixPath(name.lower()).suffix
    if begin.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "text/html"
    if ending not in TEXT_ENDINGS and _is_mail(head):
        return "message/rfc822"
    return TEXT_ENDINGS.get(ending, PLAIN)


def _is_mail(head: bytes) -> bool:
    """Tell whether a text begins with the headers of a mail."""
    lines = head.replace(b"\r\n", b"\n").split(b"\n\n", 1)[0].split(b"\n")
    return bool(HEADER.match(lines[0])) and sum(bool(HEADER.match(line)) for line in lines) > 2
