"""Finds where the objects of a JSON array stand in its text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from memory.conversation import json_strings
from memory.conversation.json_strings import find_string_end, mask_escapes
from memory.conversation.steps import end_step

_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
# Bytes between two elements
BETWEEN = b", \t\r\n"
_between = re.compile(rb"[, \t\r\n]*")
# Bytes of messages that take some 15 ms to decode and to find in their text.
LONG_BYTES = 1 << 20
# Start and end in a text
Span = tuple[int, int]
# JSON whose escapes are blanked out, up to the next bracket outside a string.
_flat = re.compile(rb'[^"\[\]{}]*+(?:"[^"]*+"[^"\[\]{}]*+)*')


def array_elements(text: bytes, array_start: int, end: int = 0) -> list[Span]:
    """Return the spans of the objects in a JSON array.

    The text must be valid JSON from `array_start`, among the elements, to the end of the array or
    the text. end: of the last element, 0 if unknown.
    """
    if 0 < end - array_start <= LONG_BYTES:
        return _spans_within(text, array_start, end)
    spans: list[Span] = []
    start = depth = 0
    for place, bracket in _brackets(text, array_start):
        if bracket in b"[{":
            start, depth = place if depth == 0 else start, depth + 1
            continue
        depth -= 1
        if depth < 0:
            break
        if depth == 0:
            spans.append((start, place + 1))
    return spans


def _spans_within(text: bytes, start: int, end: int) -> list[Span]:
    """Return the spans of the objects between two offsets: a tenth of the time of a scan."""
    spans: list[Span] = []
    start = _between.match(text, start).end()  # type: ignore[union-attr]
    for element in _split_array(b"[%b]" % text[start:end].rstrip(BETWEEN)):
        size = len(element)
        spans.append((start, start + size))
        start = _between.match(text, start + size).end()  # type: ignore[union-attr]
    return spans


def _brackets(text: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the place of each bracket outside the strings of a JSON text, and the bracket.

    Scans in windows, so that other threads can run in between.
    """
    while start < len(text):
        window = mask_escapes(text[start : start + json_strings.SCAN_WINDOW_BYTES])
        place = _flat.match(window).end()  # type: ignore[union-attr]
        while (bracket := window[place : place + 1]) and bracket != b'"':
            yield start + place, bracket
            place = _flat.match(window, place + 1).end()  # type: ignore[union-attr]
        end_step()
        # A quote is left where the window cuts its string.
        start = find_string_end(text, start + place + 1) if bracket else start + len(window)
