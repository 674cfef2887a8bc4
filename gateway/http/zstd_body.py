"""Unpacks request bodies in Zstandard (RFC 8878), which Codex sends."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Any

from gateway.wire.compression import CHUNK_BYTES, Decompressor

# 8 MiB, the most that a decoder must take for `Content-Encoding: zstd` (RFC 9659).
WINDOW_LOG = 23


class ZstdDecompressor(Decompressor):
    """Unpacks Zstandard, of several frames. Each needs at most 8 MiB beside its output."""

    def _begin_member(self) -> Any:
        # On use: few clients send it.
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._error = zstd.ZstdError
        options = {int(zstd.DecompressionParameter.window_log_max): WINDOW_LOG}
        return zstd.ZstdDecompressor(options=options)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        try:
            yield self._member_decoder.decompress(data, CHUNK_BYTES)
            while not (self._member_decoder.eof or self._member_decoder.needs_input):
                yield self._member_decoder.decompress(b"", CHUNK_BYTES)
        except self._error as e:
            raise zlib.error(str(e)) from e
