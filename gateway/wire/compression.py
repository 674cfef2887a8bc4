"""Compressed bodies, of requests and of answers, unpacked as they come. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 1 << 20


class Decompressor:
    """Unpacks gzip, of several members, or zlib, as the first bytes say.

    members: at most so many, 0 for any; each costs a copy of what is behind it, and need not unpack
    to anything. whole: not in the middle of one.
    """

    def __init__(self, members: int = 0) -> None:
        self._one = self._begin_member()
        self._members, self._seen = members, 1
        self.whole = True

    def feed(self, data: bytes) -> bytes:
        """Return what the next bytes unpack to, which may be nothing yet. Raises zlib.error."""
        return b"".join(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes unpack to, in pieces of at most `CHUNK_BYTES`.

        So a small body that unpacks to a large one can be stopped on the way. Raises zlib.error.
        """
        while data:
            if self._one.eof:
                self._seen += 1
                if self._seen > self._members > 0:
                    raise zlib.error(f"it has more than {self._members} members")
                self._one = self._begin_member()
            yield from self._unpack(data)
            self.whole = self._one.eof
            data = self._one.unused_data if self.whole else b""

    def _begin_member(self) -> Any:
        """Return what unpacks the next member."""
        return zlib.decompressobj(wbits=47)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes unpack to, as far as they belong to this member."""
        piece = b" " * CHUNK_BYTES
        while len(piece) == CHUNK_BYTES and not self._one.eof:
            piece = self._one.decompress(data, CHUNK_BYTES)
            data = self._one.unconsumed_tail
            yield piece
