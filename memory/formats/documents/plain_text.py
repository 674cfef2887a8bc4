"""Bytes to text: encodings, line ends, and characters that no text needs. Pure."""

from __future__ import annotations

import codecs
import re

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff\ufeff]")
LINE_ENDS = re.compile("\r\n?|\x0c")


def decode_text(data: bytes) -> str:
    """Return the text of a file: by its byte order mark, as UTF-8, else as Windows-1252."""
    for byte_order_mark, encoding in BOMS:
        if data.startswith(byte_order_mark):
            return data[len(byte_order_mark) :].decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def clean_text(text: str) -> str:
    """Return text with line feeds alone, without control characters but tabs."""
    return CONTROLS.sub("", LINE_ENDS.sub("\n", text))
