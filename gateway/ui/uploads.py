"""Reads a form that brings a file (multipart/form-data, RFC 7578). Pure, in linear time."""

from __future__ import annotations

import re

from gateway.errors import BadRequest

BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
NAME = re.compile(rb';[ \t]*name="([^"\r\n]*)"', re.IGNORECASE)
HEAD_BYTES = 4096  # of the headers of one field
UNREADABLE = "The form cannot be read. Reload the page and try again."


def is_upload(content_type: str) -> bool:
    """Tell whether a form is sent in parts."""
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def read_upload(body: bytes, content_type: str, most: int) -> dict[str, str]:
    """Return the fields of a form, its files as their text. most: of fields. Raises BadRequest."""
    found = BOUNDARY.search(content_type)
    if found is None:
        raise BadRequest(UNREADABLE)
    delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(delimiter, most + 2)
    if len(parts) < 2 or parts[0] or not parts[-1].startswith(b"--"):
        raise BadRequest(UNREADABLE)
    return dict(map(_read_part, parts[1:-1]))


def _read_part(part: bytes) -> tuple[str, str]:
    """Return the name and the text of one field. Raises BadRequest."""
    end = part.find(b"\r\n\r\n", 0, HEAD_BYTES)
    name = NAME.search(part, 0, end) if end >= 0 and part.startswith(b"\r\n") else None
    if name is None:
        raise BadRequest(UNREADABLE)
    try:
        return name[1].decode(), part[end + 4 :].decode()
    except UnicodeDecodeError as e:
        raise BadRequest("The file is not UTF-8 text. Choose another one.", param="file") from e
