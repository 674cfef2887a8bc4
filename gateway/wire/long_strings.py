"""Reads JSON texts with long strings in short steps. Pure.

A decoder holds the interpreter until it has undone all escapes of a string: 150 ms for 60 MiB of
line ends, 60 ms for a string without any. So such strings are cut out, decoded piece by piece, and
put where they were. Long white space between values, which takes as long, is cut out too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import msgspec

from memory.conversation.json_strings import count_in_steps, find_string_end, mask_escapes
from memory.conversation.steps import end_step

# A shorter text is read in one step.
LONG_BYTES = 1 << 22
# Of which some 15 ms are decoded in one step.
VERY_LONG_BYTES = 1 << 24
# Some 5 ms.
MANY_ESCAPES = 1 << 20
# Of a string, decoded in one step.
PIECE_BYTES = 1 << 19
# Looked through in one step; a string within one is short.
WINDOW_BYTES = 1 << 18
BLANKS = b" \t\r\n"
# Of white space, at a place that is a multiple of this.
BLANK_BYTES = 1 << 12
AS_BLANKS = str.maketrans("01", " \t")
BACKSLASH = b"\\"
# No string of JSON holds control characters.
ESCAPED = BACKSLASH + bytes(range(0x20))
# A longer text is translated without its strings of more than that.
CUT_BYTES = 1 << 20
# Of such a string.
KEPT_BYTES = 1 << 10
ESCAPE_BYTES = len(rb"\ud83d")
# Of a surrogate pair.
HIGH_HALF = re.compile(rb"\\u[dD][89abAB]")
# What stands for a string until it is put back; no client can know it.
STAND_IN = f"long-{secrets.token_hex(16)}-"

Span = tuple[int, int]
_name = re.compile(re.escape(STAND_IN.encode()) + rb"\d+")
_decode_text = msgspec.json.Decoder(str).decode


def takes_long(text: bytes) -> bool:
    """Tell whether a JSON text takes long to decode for its escapes, or for its length alone."""
    if len(text) > VERY_LONG_BYTES:
        return True
    return len(text) > LONG_BYTES and count_in_steps(text, BACKSLASH) > MANY_ESCAPES


def read_in_steps(text: bytes, decoder: Callable[[bytes], Any]) -> Any:
    """Return what a JSON text says. decoder: decodes it without its long strings.

    Raises msgspec.DecodeError.
    """
    cut_text, spans = cut_long_strings(text)
    if not spans:
        return decoder(text)
    value = decoder(cut_text)
    strings = {
        name: _read_string(text, *span) for name, span in spans.items() if not name.isspace()
    }
    return _put_back(value, strings)


def cut_long_strings(text: bytes) -> tuple[bytes, dict[str, Span]]:
    """Return a JSON text with short names for its long strings, and where those stand in it.

    The name of long white space is white space, no two alike.
    """
    places = list(_long_places(text))
    names = [
        f"{n + 1:b}".translate(AS_BLANKS) if is_blank else f"{STAND_IN}{n}"
        for n, (_, is_blank) in enumerate(places)
    ]
    spans = [span for span, _ in places]
    return _replace_spans(text, spans, names), dict(zip(names, spans, strict=True))


class CutText:
    """A JSON text without the greatest part of its very long plain strings, such as images.

    It is translated without them, and they are put back uncopied. A string keeps its beginning,
    which tells what it is. text: the whole one. uncut: its strings may be read in full.
    """

    def __init__(self, text: bytes, *, uncut: bool = False) -> None:
        self._text = text
        if uncut or len(text) <= CUT_BYTES:
            spans = []
        else:
            spans = _plain_ends(text)
        names = [f"{STAND_IN}{end - begin}{n:06}" for n, (begin, end) in enumerate(spans)]
        self._spans = dict(zip(names, spans, strict=True))
        if spans:
            self.cut_text = _replace_spans(text, spans, names)
        else:
            self.cut_text = text

    def restore(self, translated: bytes) -> bytes | list[bytes | memoryview]:
        """Return a text that was made of the cut one, in parts where it has such strings."""
        if not self._spans:
            return translated
        out: list[bytes | memoryview] = []
        view = memoryview(self._text)
        at = 0
        for name in _name.finditer(translated):
            out += (translated[at : name.start()], view[slice(*self._spans[name[0].decode()])])
            at = name.end()
        return [*out, translated[at:]]


def _plain_ends(text: bytes) -> list[Span]:
    """Return where the very long strings without escapes go on behind their beginnings."""
    end_spans = []
    for begin, end in long_strings(text):
        # Is decoded, to be sent as a text.
        is_text = text.startswith(b"data:text/", begin)
        if end - begin > CUT_BYTES and not is_text and _is_plain(text, begin, end):
            end_spans.append((_safe_cut(text, begin, begin + KEPT_BYTES), end))
    return end_spans


def _replace_spans(text: bytes, spans: Sequence[Span], names: Sequence[str]) -> bytes:
    ends = [0, *(place for span in spans for place in span), len(text)]
    between = [text[a:b] for a, b in list(pairwise(ends))[::2]]
    return b"".join(p + n.encode() for p, n in zip(between, [*names, ""], strict=True))


def restore(part: bytes, text: bytes, spans: Mapping[str, Span]) -> bytes:
    """Return a part of a cut text with the strings that stood in the text, copied in steps."""
    view = memoryview(text)
    text_parts = list[bytes | memoryview]()
    at = 0
    for name in _name.finditer(part):
        text_parts += (part[at : name.start()], view[slice(*spans[name[0].decode()])])
        at = name.end()
    text_parts.append(part[at:])
    # It grows where it is: to ask for all of its memory at once would take 40 ms for 60 MiB.
    restored = bytearray()
    for text_part in text_parts:
        for begin in range(0, len(text_part), PIECE_BYTES):
            restored += text_part[begin : begin + PIECE_BYTES]
            end_step()
    # Nobody changes it, and bytes would be one more copy of all of it.
    return cast(bytes, restored)


def place_in_text(place: int, spans: Mapping[str, Span]) -> int:
    """Return where in a text a place of its cut text is, which is in none of the names."""
    omitted_bytes = 0
    for name, (begin, end) in spans.items():
        if begin - omitted_bytes >= place:
            break
        omitted_bytes += end - begin - len(name)
    return place + omitted_bytes


def long_strings(text: bytes) -> Iterator[Span]:
    """Yield where long strings stand, without their quotes."""
    return (span for span, is_blank in _long_places(text) if not is_blank)


def _long_places(text: bytes) -> Iterator[tuple[Span, bool]]:
    """Yield where long strings stand, without their quotes, and long white space between values.

    Whether it is white space is told beside each.
    """
    at = 0
    while at < len(text):
        step = mask_escapes(text[at : at + WINDOW_BYTES])
        parts = step.split(b'"')
        for span in _blank_places(parts, at):
            yield span, True
        at += len(step)
        end_step()
        # The step cuts a string.
        if len(parts) % 2 == 0:
            begin = at - len(parts[-1])
            at = find_string_end(text, begin)
            if at - begin > WINDOW_BYTES and text.endswith(b'"', begin, at):
                yield (begin, at - 1), False


def _blank_places(parts: Sequence[bytes], start: int) -> Iterator[Span]:
    """Yield where white space stands in the parts of a text that begin and end at its quotes.

    start: of the first part in the text. Every other part is a string.
    """
    if max(map(len, parts[::2])) < BLANK_BYTES:
        return
    for n, part in enumerate(parts):
        begin = end = -1
        for block in range(0, len(part) - BLANK_BYTES + 1, BLANK_BYTES) if n % 2 == 0 else ():
            if part[block : block + BLANK_BYTES].strip(BLANKS):
                continue
            if block != end:
                if end > begin:
                    yield start + begin, start + end
                begin = block
            end = block + BLANK_BYTES
        if end > begin:
            yield start + begin, start + end
        start += len(part) + 1


def _read_string(text: bytes, at: int, end: int) -> str:
    """Return a string. Raises msgspec.DecodeError."""
    # Without escapes each piece is one copy, which takes a third of the time of a decoder's.
    if _is_plain(text, at, end):
        reader = _read_plain
    else:
        reader = _decode
    # A text that grows at its end stays where it is: no step copies all of it.
    value = ""
    for text_part in reader(text, at, end):
        value += text_part
        end_step()
    return value


def _is_plain(text: bytes, at: int, end: int) -> bool:
    """Tell whether a string has no escapes, and nothing that would have to be one."""
    for begin in range(at, end, PIECE_BYTES):
        segment = text[begin : min(begin + PIECE_BYTES, end)]
        if len(segment.translate(None, ESCAPED)) != len(segment):
            return False
        end_step()
    return True


def _read_plain(text: bytes, at: int, end: int) -> Iterator[str]:
    """Yield a string without escapes in pieces. Raises UnicodeDecodeError."""
    view = memoryview(text)
    while at < end:
        border = min(at + PIECE_BYTES, end)
        # Amid a character of UTF-8.
        while border < end and text[border] & 0xC0 == 0x80:
            border += 1
        yield str(view[at:border], "utf-8")
        at = border


def _decode(text: bytes, at: int, end: int) -> Iterator[str]:
    """Yield a string in pieces. Raises msgspec.DecodeError."""
    while at < end:
        border = at + PIECE_BYTES
        if border >= end:
            segment_end = end
        else:
            segment_end = _safe_cut(text, at, border)
        yield _decode_text(b'"%b"' % text[at:segment_end])
        at = segment_end


def _safe_cut(text: bytes, begin: int, border: int) -> int:
    """Return where to cut at the latest: in no escape, no pair of them, and no character.

    begin: a place that is safe itself.
    """
    # Amid a character of UTF-8.
    while text[border] & 0xC0 == 0x80:
        border -= 1
    # A run of backslashes begins an escape, so pairs are taken from its left.
    prefix = text[begin:border].replace(BACKSLASH * 2, b"__")
    backslash = prefix.rfind(BACKSLASH, max(0, len(prefix) - ESCAPE_BYTES))
    if backslash < 0:
        return border
    size = 2
    if prefix.startswith(b"u", backslash + 1):
        size = ESCAPE_BYTES
    if backslash + size <= len(prefix):
        if HIGH_HALF.match(prefix, backslash):
            return begin + backslash
        return border
    before = max(0, backslash - ESCAPE_BYTES)
    return begin + (before if HIGH_HALF.match(prefix, before) else backslash)


def _put_back(value: Any, strings: Mapping[str, str]) -> Any:
    """Return a value with its long strings."""
    holder = [value]
    unvisited: list[Any] = [holder]
    while unvisited:
        part = unvisited.pop()
        if isinstance(part, dict) and not part.keys().isdisjoint(strings):
            renamed_members = {strings.get(k, k): v for k, v in part.items()}
            part.clear()
            part.update(renamed_members)
        for place, item in list(part.items() if isinstance(part, dict) else enumerate(part)):
            if isinstance(item, dict | list):
                unvisited.append(item)
            elif type(item) is str and item in strings:
                part[place] = strings[item]
    return holder[0]
