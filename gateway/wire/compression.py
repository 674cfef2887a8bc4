"""Compressed bodies, of requests and of answers, unpacked as they come. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 1 << 20


class Decompressor:
    """Unpacks gzip, of several members, or zlib, as the first bytes say.

    members: at most so many, 0 for any; each costs a copy of what is behind it, and need not unpack
    to anything. is_between_members: not in the middle of one.
    """

    def __init__(self, members: int = 0) -> None:
        self._member_decoder = self._begin_member()
        self._members = members
        self._member_count = 1
        self.is_between_members = True

    def feed(self, data: bytes) -> bytes:
        """Return what the next bytes unpack to, which may be nothing yet. Raises zlib.error."""
        return b"".join(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes unpack to, in pieces of at most `CHUNK_BYTES`.

        So a small body that unpacks to a large one can be stopped on the way. Raises zlib.error.
        """
        while data:
            if self._member_decoder.eof:
                self._member_count += 1
                if self._member_count > self._members > 0:
                    raise zlib.error(f"it has more than {self._members} members")
                self._member_decoder = self._begin_member()
            yield from self._unpack(data)
            self.is_between_members = self._member_decoder.eof
            data = b""
            if self.is_between_members:
                data = self._member_decoder.unused_data

    def _begin_member(self) -> Any:
        """Return what unpacks the next member."""
        return zlib.decompressobj(wbits=47)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes unpack to, as far as they belong to this member."""
        output = b" " * CHUNK_BYTES
        while len(output) == CHUNK_BYTES and not self._member_decoder.eof:
            output = self._member_decoder.decompress(data, CHUNK_BYTES)
            data = self._member_decoder.unconsumed_tail
            yield output
