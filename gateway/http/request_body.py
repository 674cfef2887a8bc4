"""Read a request's body within its limit and decompress it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from io import BytesIO
from typing import Any

from gateway.errors import BadRequest, LeftEarly, TooLarge, UnsupportedMedia
from gateway.http.pacing import LOOP_PAUSE_SECONDS
from gateway.http.zstd_body import ZstdDecompressor
from gateway.wire.compression import CHUNK_BYTES, Decompressor

# Of a compressed body; limited, since members may be empty.
MEMBERS = 16
# Of a length: a longer one is beyond any limit.
MOST_DIGITS = 20
PLAIN = (b"", b"identity")
DECOMPRESSORS = {b"gzip": Decompressor, b"deflate": Decompressor, b"zstd": ZstdDecompressor}


async def read_body(receive: Any, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """Return the whole body, decompressed.

    limit: in bytes, counted as they arrive and after decompression. Raises TooLarge (without
    reading the rest), UnsupportedMedia, BadRequest, LeftEarly.
    """
    if declared_length(headers) > limit:
        raise _too_large(limit)
    encoding = headers.get(b"content-encoding", b"identity").lower()
    unpack = None if encoding in PLAIN else _open_decompressor(encoding)
    # It grows in place: to join the pieces of a large body would copy it in one long step.
    body = BytesIO()
    came = size = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftEarly("The client left before its body was read.")
        # As most bodies come.
        if unpack is None and not came and not message.get("more_body"):
            only: bytes = message.get("body", b"")
            if len(only) > limit:
                raise _too_large(limit)
            return only
        has_more = bool(message.get("more_body"))
        part = message.get("body", b"")
        came += len(part)
        for chunk in _pieces(unpack, part):
            size += len(chunk)
            if max(size, came) > limit:
                raise _too_large(limit)
            body.write(chunk)
            if unpack is not None and len(chunk) == CHUNK_BYTES:
                # Let other requests run.
                await asyncio.sleep(LOOP_PAUSE_SECONDS)
    # A truncated request must not be processed.
    if unpack is not None and not unpack.is_between_members:
        raise BadRequest("The compressed request body is truncated. Send all of it.")
    return body.getvalue()


async def stream_body(receive: Any, headers: Mapping[bytes, bytes]) -> AsyncIterator[bytes]:
    """Yield the body in pieces as it arrives, decompressed. The caller bounds what it takes.

    Raises UnsupportedMedia, BadRequest, LeftEarly.
    """
    encoding = headers.get(b"content-encoding", b"identity").lower()
    unpack = None if encoding in PLAIN else _open_decompressor(encoding)
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftEarly("The client left before its body was read.")
        has_more = bool(message.get("more_body"))
        for chunk in _pieces(unpack, message.get("body", b"")):
            yield chunk
            if unpack is not None:
                # Let other requests run.
                await asyncio.sleep(0)
    if unpack is not None and not unpack.is_between_members:
        raise BadRequest("The compressed request body is truncated. Send all of it.")


def declared_length(headers: Mapping[bytes, bytes]) -> int:
    """Return how many bytes a body is said to have, 0 where that is not said."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit():
        return int(declared) if len(declared) < MOST_DIGITS else 10**MOST_DIGITS
    return 0


def is_plain(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a body is not compressed."""
    return headers.get(b"content-encoding", b"identity").lower() in PLAIN


def _open_decompressor(encoding: bytes) -> Decompressor:
    """Return what decompresses a body. Raises UnsupportedMedia."""
    if encoding not in DECOMPRESSORS:
        raise UnsupportedMedia(
            f"The body is encoded as {encoding[:60].decode('latin-1')!r}. Send it plain, or "
            "compressed with gzip, deflate or zstd."
        )
    return DECOMPRESSORS[encoding](MEMBERS)


def _pieces(unpack: Decompressor | None, part: bytes) -> Iterator[bytes]:
    """Yield the decompressed pieces of a part of the body. Raises BadRequest."""
    try:
        yield from (part,) if unpack is None else unpack.pieces(part)
    except zlib.error as e:
        raise BadRequest(
            f"The body does not match its Content-Encoding ({e}). Send it plain, or as one "
            "member of it."
        ) from e


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"The body is larger than {limit} bytes. Send less, or raise server.max_body_mib.",
        headers=[(b"connection", b"close")],
    )
