"""JSON text to send on, whose very long strings are encoded slice by slice as they are sent. Pure.

A request with an image of 60 MiB is in memory already, as its bytes and as what they say. To send
it on needs no third copy: the slices of its long strings are made when the connection takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, overload

from gateway.wire.lone_surrogates import OPENING, encode_json_in_parts, with_escapes
from memory.conversation.long_json import TextSlice, split_long


class LongContent(Sequence[bytes]):
    """The parts of a JSON text; those of long strings are made each time they are asked for.

    size: their bytes together.
    """

    def __init__(self, parts: Sequence[bytes | TextSlice]) -> None:
        self._parts = parts
        self.size = sum(map(len, self))

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [_encode_part(part) for part in self._parts[at]]
        return _encode_part(self._parts[at])

    def join(self) -> bytes:
        """Return the text in one piece, without its parts beside it."""
        buffer = BytesIO()
        for part in self:
            buffer.write(part)
        return buffer.getvalue()

    def __iter__(self) -> Iterator[bytes]:
        return map(_encode_part, self._parts)


def _encode_part(part: bytes | TextSlice) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode()


def encode_json_late(value: Any) -> Sequence[bytes]:
    """Return JSON text to send on, with halves of surrogate pairs as they came.

    Its long strings are not encoded yet, unless there may be such a half in one.
    """
    parts = split_long(value)
    texts = [part.text for part in parts if isinstance(part, TextSlice)]
    if any(OPENING in text for text in texts):
        return encode_json_in_parts(value)
    return LongContent([with_escapes(p) if isinstance(p, bytes) else p for p in parts])
