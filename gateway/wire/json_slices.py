"""Reads large JSON texts in short steps, a slice of an array or object at a time. Pure.

A decoder holds the interpreter until it has made all values of a text: 40 ms for 500,000 of them,
and 200 ms for 60 MiB of short strings. To step over a value costs a tenth of that, so what is large
is split into its elements, and those are decoded in groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from memory.conversation.steps import end_step

# Decoded in one step, of some 5 ms at most.
SLICE_BYTES = 1 << 18
# Of arrays and objects that are split; what is deeper is decoded in one step.
LEVELS = 8
# Arrays and objects, in some 0.1 ms.
EMPTIED_TOGETHER = 256
# In a message of the decoder's.
POSITION = re.compile(r" \(byte \d+\)")
# Of the escape of a pair of surrogates, the longest, and how the first half of one begins.
PAIR_BYTES = 12
FIRST_HALVES = (b"d8", b"d9", b"da", b"db")
# Of a byte in UTF-8 that goes on with a character.
CONTINUATION, CONTINUATION_MASK = 0x80, 0xC0
_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_in_slices(text: bytes) -> Any:
    """Return what a JSON text says. Raises msgspec.DecodeError, RecursionError.

    A fault within a slice is told without its place.
    """
    if len(text) <= SLICE_BYTES:
        return _decode(text)
    # Stepped over at first: what is no JSON is told with its place in the whole text.
    value = msgspec.json.decode(text, type=msgspec.Raw)
    end_step()
    try:
        return _read(value, LEVELS)
    except msgspec.DecodeError as e:
        raise msgspec.DecodeError(POSITION.sub("", str(e))) from e


def discard(value: Any) -> None:
    """Empty a large value that nobody uses any more, in short steps.

    Python frees what a value holds all at once: 40 ms for 400,000 values.
    """
    left = [value]
    emptied = 0
    while left:
        part = left.pop()
        if isinstance(part, dict):
            left += (v for v in part.values() if isinstance(v, dict | list))
            part.clear()
        elif isinstance(part, list):
            left += (v for v in part if isinstance(v, dict | list))
            part.clear()
        emptied += 1
        if emptied % EMPTIED_TOGETHER == 0:
            end_step()


def _read(value: msgspec.Raw, levels: int) -> Any:
    first = bytes(memoryview(value)[:1])
    if len(value) > SLICE_BYTES and first == b'"':
        return _read_string(bytes(value))
    if len(value) <= SLICE_BYTES or not levels or first not in (b"{", b"["):
        decoded = _decode(value)
        end_step()
        return decoded
    if first == b"{":
        members = _members(value)
        end_step()
        return _read_members(members, levels - 1)
    elements = _elements(value)
    end_step()
    return _read_elements(elements, levels - 1)


def _read_string(text: bytes) -> str:
    """Return what a long JSON string says, a slice at a time."""
    slices: list[str] = []
    start = 1
    end = len(text) - 1
    while start < end:
        slice_end = _end_of_slice(text, start, end)
        slices.append(_decode(b'"%b"' % text[start:slice_end]))
        end_step()
        start = slice_end
    return "".join(slices)


def _end_of_slice(text: bytes, start: int, end: int) -> int:
    """Return where a slice of a string may end: no escape goes on there, and no character."""
    at = min(start + SLICE_BYTES, end)
    escape = text.rfind(b"\\", max(start, at - PAIR_BYTES), at)
    if escape >= 0:
        before = text[start : escape + 1]
        # Of a run of backslashes, each second one is itself escaped.
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            at = max(at, _end_of_escape(text, escape))
    while at < end and text[at] & CONTINUATION_MASK == CONTINUATION:
        at += 1
    return at


def _end_of_escape(text: bytes, start: int) -> int:
    """Return where an escape ends; that of a pair of surrogates is one."""
    if text[start + 1 : start + 2] != b"u":
        return start + 2
    is_first_half = text[start + 2 : start + 4].lower() in FIRST_HALVES
    middle = start + PAIR_BYTES // 2
    if is_first_half and text[middle : middle + 2] == b"\\u":
        return start + PAIR_BYTES
    return middle


def _read_members(members: dict[str, msgspec.Raw], levels: int) -> dict[str, Any]:
    read: dict[str, Any] = {}
    names = iter(members)
    for group in _groups(members.values()):
        values = _read_group(group, levels)
        # The values come first: they end first, and no name is taken then.
        read.update((name, value) for value, name in zip(values, names, strict=False))
    return read


def _read_elements(elements: list[msgspec.Raw], levels: int) -> list[Any]:
    read: list[Any] = []
    for group in _groups(elements):
        read += _read_group(group, levels)
    return read


def _read_group(group: list[msgspec.Raw], levels: int) -> list[Any]:
    if len(group) == 1:
        return [_read(group[0], levels)]
    values: list[Any] = _decode(b"[" + b",".join(group) + b"]")
    end_step()
    return values


def _groups(values: Iterable[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """Yield values together that are read in one step; a large one is alone."""
    group: list[msgspec.Raw] = []
    size = 0
    for value in values:
        size += len(value) + 1
        if group and size > SLICE_BYTES:
            yield group
            group = []
            size = len(value) + 1
        group.append(value)
    if group:
        yield group
