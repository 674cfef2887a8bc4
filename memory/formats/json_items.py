"""Splits a long JSON text into its items, without holding more than one of them. Pure.

The items are the elements of an array, or objects one after the other (JSON lines, or a single
one). Only brackets and strings are looked at here; decoding an item shows whether it is valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from memory.conversation.json_strings import mask_escapes

# Bytes read at once.
CHUNK = 1 << 20
# Bytes of one item.
ITEM_BYTES = 64 << 20
MARK = re.compile(rb'["\[\]{}]')
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ByteReader(Protocol):
    """A source of bytes: an open file, or a member of an archive."""

    def read(self, size: int, /) -> bytes: ...


class NotJson(ValueError):
    """The text is not made of JSON objects; the message says where."""


@dataclass(frozen=True, slots=True)
class JsonItem:
    """One item.

    number: from 1. at: the byte where it begins. raw: its text, None if it is larger than allowed.
    whole: False if the text ends within it.
    """

    number: int
    at: int
    raw: bytes | None
    whole: bool = True


def split_items(stream: ByteReader, max_bytes: int = ITEM_BYTES) -> Iterator[JsonItem]:
    """Yield the items of a JSON text, in order.

    Args:
        stream: read once, in pieces of 1 MiB.
        max_bytes: bytes of an item; a larger one is yielded without its text.

    Raises:
        NotJson: the text does not begin like JSON, or closes what was not opened.
    """
    splitter = _Splitter(max_bytes)
    chunk = stream.read(CHUNK).removeprefix(BYTE_ORDER_MARK)
    if (first_byte := chunk.lstrip()[:1]) not in (b"[", b"{"):
        raise NotJson("it does not begin with [ or {, so it is no JSON of objects")
    splitter.base = int(first_byte == b"[")
    while chunk:
        yield from splitter.feed(chunk)
        chunk = stream.read(CHUNK)
    yield from splitter.end()


class _Splitter:
    """base: the depth at which items begin. The text is fed to it in pieces."""

    def __init__(self, max_bytes: int) -> None:
        self.base = 0
        self._max_bytes = max_bytes
        self._depth = self._number = 0
        # Bytes before this piece.
        self._read_bytes = 0
        # Where the item began, -1 between items.
        self._item_begin = -1
        self._parts: list[bytes] = []
        self._size = 0
        self._in_string = self._is_escaped = False

    def feed(self, chunk: bytes) -> Iterator[JsonItem]:
        """Yield the items that end in this piece. Raises NotJson."""
        place = start = 0
        masked = self._mask(chunk)
        while place < len(chunk):
            if self._in_string:
                quote = masked.find(b'"', place)
                self._in_string = quote < 0
                if quote < 0:
                    place = len(chunk)
                else:
                    place = quote + 1
                continue
            token = MARK.search(masked, place)
            if token is None:
                break
            place = token.end()
            if token[0] == b'"':
                self._in_string = True
            elif token[0] in b"[{":
                if self._depth == self.base and self._item_begin < 0:
                    start = token.start()
                    self._item_begin = self._read_bytes + token.start()
                self._depth += 1
            elif self._close(self._read_bytes + token.start()):
                self._keep(chunk[start:place])
                yield self._take()
        if self._item_begin >= 0:
            self._keep(chunk[start:])
        self._read_bytes += len(chunk)

    def end(self) -> Iterator[JsonItem]:
        """Yield the unfinished item at the end of the text, if there is one."""
        if self._item_begin >= 0:
            yield self._take(is_complete=False)

    def _mask(self, chunk: bytes) -> bytes:
        """Blank out the escapes of a piece, also one that the piece before it began."""
        if self._is_escaped:
            masked = b"_" + mask_escapes(chunk[1:])
        else:
            masked = mask_escapes(chunk)
        self._is_escaped = masked.endswith(b"\\")
        return masked

    def _close(self, place: int) -> bool:
        """Go one level up; tell whether an item ends. Raises NotJson."""
        self._depth -= 1
        if self._depth < 0:
            raise NotJson(f"byte {place} closes a bracket that was never opened")
        return self._item_begin >= 0 and self._depth == self.base

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max_bytes:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _take(self, *, is_complete: bool = True) -> JsonItem:
        self._number += 1
        item_bytes = None
        if self._size <= self._max_bytes:
            item_bytes = b"".join(self._parts)
        item = JsonItem(self._number, self._item_begin, item_bytes, is_complete)
        self._item_begin = -1
        self._size = 0
        self._parts.clear()
        return item
