"""What a reading child says to its parent: frames of MessagePack, each with its length before it.

The child parses hostile files, so nothing that it says is believed before it is checked here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from memory.formats.documents.cutting import SIZE
from memory.formats.documents.document import DocumentLimits
from memory.formats.documents.symbols import MAX_SYMBOLS, NAME_CHARACTERS
from memory.formats.documents.trigrams import MAX_NUMBER

LENGTH_BYTES = 4
# Of one frame at most.
FRAME_BYTES = 16 << 20
# Of the names of definitions in one passage.
NAMED_CHARACTERS = 500
# Passages in a frame.
TOGETHER = 100
Line = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
ShortText = Annotated[str, msgspec.Meta(max_length=400)]
Gram = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Words = Annotated[list[str], msgspec.Meta(max_length=8 * SIZE)]


class ReadRequest(msgspec.Struct):
    """What the child is asked: it stands before the bytes of the file."""

    name: str
    size: int
    limits: DocumentLimits


class ReadPassage(msgspec.Struct, array_like=True):
    """A passage with its words as they are indexed.

    named: the names of the definitions that begin in it.
    """

    page: Line
    line_start: Line
    line_end: Line
    content: Annotated[str, msgspec.Meta(max_length=SIZE)]
    words: Words
    named: Annotated[str, msgspec.Meta(max_length=NAMED_CHARACTERS)] = ""


class ReadSymbol(msgspec.Struct, array_like=True):
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS)]
    kind: ShortText
    line_start: Line
    line_end: Line
    page: Line
    # The line in which it begins, cut.
    content: ShortText


class HeadFrame(msgspec.Struct, tag="head"):
    """The file could be read. page_lines: the number of the first line of each page."""

    media_type: ShortText
    characters: Annotated[int, msgspec.Meta(ge=0)]
    lines: Line
    page_lines: Annotated[list[Line], msgspec.Meta(max_length=1_000_000)] = []


class PassagesFrame(msgspec.Struct, tag="passages"):
    passages: Annotated[list[ReadPassage], msgspec.Meta(max_length=TOGETHER)]


class SymbolsFrame(msgspec.Struct, tag="symbols"):
    symbols: Annotated[list[ReadSymbol], msgspec.Meta(max_length=MAX_SYMBOLS)]


class GramsFrame(msgspec.Struct, tag="grams"):
    """The places of trigrams and their pairs, see `trigrams`."""

    grams: Annotated[list[tuple[Gram, bytes]], msgspec.Meta(max_length=MAX_NUMBER)]


class FailedFrame(msgspec.Struct, tag="failed"):
    reason: ShortText


class EndFrame(msgspec.Struct, tag="end"):
    """The last frame: without it the child ended early."""


Frame = HeadFrame | PassagesFrame | SymbolsFrame | GramsFrame | FailedFrame | EndFrame
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode
_decode_request = msgspec.msgpack.Decoder(ReadRequest).decode


def encode_frame(frame: Frame | ReadRequest) -> bytes:
    """Return a frame with its length before it."""
    data = _encode(frame)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def decode_frame(data: bytes) -> Frame:
    """Return a frame. Raises msgspec.ValidationError, msgspec.DecodeError."""
    frame: Frame = _decode(data)
    return frame


def decode_request(data: bytes) -> ReadRequest:
    return _decode_request(data)
