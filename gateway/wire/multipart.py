"""The fields of a `multipart/form-data` body, found by plain searches: linear in bytes, parts and
lines. Pure.

Servers differ in what they make of an odd form: the last of two fields of a name, a name in another
spelling, a part that only some of them see. So a form is read strictly or not at all: each place
where the boundary stands begins a part, and each part says its name once and plainly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from memory.conversation.json_strings import find_from
from memory.conversation.steps import end_step

KIND = b"multipart/form-data"
PARTS = 1000
# Of a part's head.
LINES = 16
# Looked at in one step: other threads run between two of them.
STEP_BYTES = 1 << 20
LINE_BYTES = 4096
# Of a field that is asked for.
VALUE_BYTES = 1000
BOUNDARY = re.compile(rb'boundary=(?:"([^"\\]{1,200})"|([^\s";,]{1,200}))', re.IGNORECASE)
HEADER = re.compile(rb"([\w!#$%&'*+.^`|~-]++):[ \t]*+([^\r\n\x00]*+)")
PARAMETER = re.compile(rb';[ \t]*+([\w*]++)=(?:"([^"\\]*+(?:\\.[^"\\]*+)*)"|([^\s";,]++))[ \t]*+')
AS_IT_IS = (b"", b"binary", b"7bit", b"8bit")


class MalformedForm(ValueError):
    """Servers may read this form in several ways; the text says why."""


class FormField(NamedTuple):
    """A part and where its value lies. file: it has a file's name."""

    name: bytes
    file: bool
    start: int
    end: int


def is_form(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == KIND


def may_name_field(form: bytes, endings: Sequence[bytes]) -> bool:
    """Tell whether a name with one of these endings stands in a form that cannot be read.

    endings: in small letters, as they stand in a part's head.
    """
    reach = max(map(len, endings)) - 1
    for offset in range(0, len(form), STEP_BYTES):
        step = form[offset : offset + STEP_BYTES + reach].lower()
        if any(ending in step for ending in endings):
            return True
        end_step()
    return False


def field(form: bytes, content_type: bytes, name: bytes) -> FormField | None:
    """Return the one field of this name; None where there is none. Raises Malformed."""
    named_field: FormField | None = None
    for part in fields(form, content_type):
        if part.name != name:
            if unquote_to_bytes(part.name).strip().lower().partition(b"[")[0] == name:
                raise MalformedForm(f"a part is named {part.name[:60].decode('latin-1')!r}")
        elif named_field is not None:
            raise MalformedForm(f"it has several parts named {name.decode()!r}")
        elif part.file or not 0 < part.end - part.start <= VALUE_BYTES:
            raise MalformedForm(f"{name.decode()!r} is a file, empty or over {VALUE_BYTES} bytes")
        else:
            named_field = part
    return named_field


def fields(form: bytes, content_type: bytes) -> Iterator[FormField]:
    """Yield the parts in their order. Raises Malformed."""
    delimiter = b"--" + _boundary(content_type)
    at = len(delimiter)
    if not form.startswith(delimiter):
        raise MalformedForm("it does not begin with its boundary")
    for _ in range(PARTS):
        if form.startswith(b"--", at):
            if find_from(form, delimiter, at) >= 0:
                raise MalformedForm("it goes on after its end")
            return
        end = find_from(form, delimiter, at)
        if end < 0:
            raise MalformedForm("its last part has no end")
        if not form.startswith(b"\r\n", at) or not form.startswith(b"\r\n", end - 2):
            raise MalformedForm("its boundary does not stand on a line of its own")
        yield _read_part(form, at + 2, end - 2)
        at = end + len(delimiter)
    raise MalformedForm(f"it has more than {PARTS} parts")


def _boundary(content_type: bytes) -> bytes:
    parameters = [p.strip() for p in content_type.split(b";")[1:]]
    boundaries = [p for p in parameters if p[:8].lower() == b"boundary"]
    if len(boundaries) != 1 or (boundary := BOUNDARY.fullmatch(boundaries[0])) is None:
        raise MalformedForm("its content type does not name one boundary")
    return boundary[1] or boundary[2]


def _read_part(form: bytes, at: int, end: int) -> FormField:
    """Return the part that begins at `at`, its value ending at `end`."""
    head: dict[bytes, bytes] = {}
    for _ in range(LINES + 1):
        over = form.find(b"\r\n", at, min(at + LINE_BYTES, end + 2))
        if over == at and over < end:
            return _build_field(head, at + 2, end)
        if over < 0 or over >= end or (line := HEADER.fullmatch(form, at, over)) is None:
            raise MalformedForm("a part's head is not plain lines of at most 4096 bytes")
        name = line[1].lower()
        at = over + 2
        if name in head:
            raise MalformedForm("a part has a header twice")
        head[name] = line[2].strip()
    raise MalformedForm(f"a part has more than {LINES} header lines")


def _build_field(head: dict[bytes, bytes], start: int, end: int) -> FormField:
    if head.get(b"content-transfer-encoding", b"").lower() not in AS_IT_IS:
        raise MalformedForm("a part is in a transfer encoding")
    disposition = head.get(b"content-disposition", b"")
    kind, _, _ = disposition.partition(b";")
    at = len(kind)
    parameters: dict[bytes, bytes] = {}
    while parameter := PARAMETER.match(disposition, at):
        name = parameter[1].lower()
        at = parameter.end()
        if name in parameters:
            raise MalformedForm(f"a part has {name[:60].decode('latin-1')!r} twice")
        if parameter[2] is None:
            parameters[name] = parameter[3]
        else:
            parameters[name] = parameter[2]
    name = parameters.get(b"name", b"\\")
    is_ambiguous = b"\\" in name or any(n.startswith(b"name*") for n in parameters)
    if kind.strip().lower() != b"form-data" or at != len(disposition) or is_ambiguous:
        raise MalformedForm('a part does not say its name plainly (form-data; name="...")')
    return FormField(name, b"filename" in parameters or b"filename*" in parameters, start, end)
