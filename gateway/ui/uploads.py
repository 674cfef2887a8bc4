"""Reads a form that brings a file (multipart/form-data, RFC 7578). Pure, in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from gateway.errors import BadRequest

BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
NAME = re.compile(rb';[ \t]*name="([^"\r\n]*)"', re.IGNORECASE)
FILE_NAME = re.compile(rb';[ \t]*filename="([^"\r\n]*)"', re.IGNORECASE)
# Of the headers of one field.
HEAD_BYTES = 4096
HEAD_END = b"\r\n\r\n"
UNREADABLE = "The form cannot be read. Reload the page and try again."


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a form. content: a part of the form's body, not a copy of it."""

    name: str
    content: memoryview


class SentForm(dict[str, str]):
    """The fields of a form. files: what it brings as bytes, by the name of the field."""

    def __init__(
        self, fields: Mapping[str, str], files: Mapping[str, UploadedFile] | None = None
    ) -> None:
        super().__init__(fields)
        self.files = files or {}


@dataclass(frozen=True, slots=True)
class _FormPart:
    name: str
    file_name: str | None
    content: memoryview

    def decode(self) -> str:
        """Return the content as text. Raises BadRequest."""
        try:
            return str(self.content, "utf-8")
        except UnicodeDecodeError as e:
            message = "The file is not UTF-8 text. Choose another one."
            raise BadRequest(message, param="file") from e


def is_upload(content_type: str) -> bool:
    """Tell whether a form is sent in parts."""
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def read_upload(
    body: bytes, content_type: str, max_fields: int, *, keeps_bytes: bool = False
) -> SentForm:
    """Return a form. max_fields: of fields. Raises BadRequest.

    keeps_bytes: files are left as they came; else they are fields with their text.
    """
    fields: dict[str, str] = {}
    files: dict[str, UploadedFile] = {}
    for part in _list_parts(body, content_type, max_fields):
        if keeps_bytes and part.file_name is not None:
            files[part.name] = UploadedFile(part.file_name, part.content)
        else:
            fields[part.name] = part.decode()
    return SentForm(fields, files)


def _list_parts(body: bytes, content_type: str, max_fields: int) -> Iterator[_FormPart]:
    boundary = BOUNDARY.search(content_type)
    if boundary is None:
        raise BadRequest(UNREADABLE)
    delimiter = b"--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    if not body.startswith(delimiter):
        raise BadRequest(UNREADABLE)
    view = memoryview(body)
    start = len(delimiter)
    delimiter = b"\r\n" + delimiter
    for _ in range(max_fields + 1):
        if body.startswith(b"--", start):
            return
        end = body.find(delimiter, start)
        if end < 0:
            break
        yield _read_part(body, view, start, end)
        start = end + len(delimiter)
    raise BadRequest(UNREADABLE)


def _read_part(body: bytes, view: memoryview, start: int, end: int) -> _FormPart:
    """Return one field, which begins behind its delimiter. Raises BadRequest."""
    head_end = body.find(HEAD_END, start, min(start + HEAD_BYTES, end))
    name = None
    if head_end >= 0:
        name = NAME.search(body, start, head_end)
    if name is None or not body.startswith(b"\r\n", start):
        raise BadRequest(UNREADABLE)
    file_name = FILE_NAME.search(body, start, head_end)
    content = view[head_end + len(HEAD_END) : end]
    try:
        return _FormPart(
            name[1].decode(), None if file_name is None else _clean_name(file_name[1]), content
        )
    except UnicodeDecodeError as e:
        raise BadRequest(UNREADABLE) from e


def _clean_name(encoded_name: bytes) -> str:
    """Return a file's name without its folders. Browsers encode quotes and line ends in it."""
    return re.split(r"[/\\]", unquote(encoded_name.decode()))[-1]
