"""Compressed bodies, of requests and of answers, unpacked as they come. Pure."""
from __future__ import annotations

import zlib


class Unpacker:
    """Unpacks gzip, of any number of members, or zlib, as the first bytes say. whole: not in the middle of a member."""

    def __init__(self) -> None:
        self._one = zlib.decompressobj(wbits=47)
        self.whole = True

    def feed(self, data: bytes, room: int = 0) -> bytes:
        """What the next bytes unpack to, which may be nothing yet; at most `room` bytes of it, 0 for all. Raises zlib.error."""
        out: list[bytes] = []
        left = room
        while data and (left > 0 or not room):
            if self._one.eof:
                self._one = zlib.decompressobj(wbits=47)
            out.append(self._one.decompress(data, left))
            left -= len(out[-1]) if room else 0
            data, self.whole = self._one.unused_data, self._one.eof
        return b"".join(out)
