"""Writes the data of a record as a line of bytes, and reads it again, both in short steps. Pure.

To encode or decode an answer of 60 MiB in one step holds the interpreter for longer than others may
wait, and needs a copy of all of it. So very long strings stand in slices behind the JSON text, each
after a tab, and the text has a name for each. Nothing else in a line holds a tab: JSON escapes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from memory.conversation.long_json import SLICE_CHARACTERS, name_long_strings, put_long_strings_back

SEPARATOR = b"\t"
# A member of a record with slices: what their names begin with, and how many each has.
LONG_STRINGS = "long strings"
_encode = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(dict[str, Any]).decode
_decode_slice = msgspec.json.Decoder(str).decode


def encode_line(record: dict[str, Any]) -> Iterator[bytes]:
    """Yield the line of a record in parts, without a line end."""
    # No string of a record is like it by chance.
    name = secrets.token_hex(16)
    outline, texts = name_long_strings(record, name)
    if not texts:
        yield _encode(record)
        return
    starts = [range(0, len(text), SLICE_CHARACTERS) for text in texts]
    yield _encode({**outline, LONG_STRINGS: [name, [len(s) for s in starts]]})
    for text, places in zip(texts, starts, strict=True):
        for at in places:
            yield SEPARATOR
            yield _encode(text[at : at + SLICE_CHARACTERS])


def decode_line(parts: Iterable[bytes]) -> dict[str, Any]:
    """Return the record of a line. parts: what stands between its tabs.

    Raises msgspec.MsgspecError, UnicodeError, TypeError or ValueError for what is no such line.
    """
    slices = iter(parts)
    record = _decode_record(next(slices, b""))
    if LONG_STRINGS in record:
        name, counts = record.pop(LONG_STRINGS)
        texts = {f"{name}{n}": _read_slices(slices, count) for n, count in enumerate(counts)}
        record = put_long_strings_back(record, texts)
    if next(slices, None) is not None:
        raise ValueError("more slices than the record names")
    return record


def _read_slices(parts: Iterator[bytes], count: int) -> str:
    text = ""
    slice_count = 0
    for part in islice(parts, count):
        # Grows in place, so that there is no list of all slices beside it.
        text += _decode_slice(part)
        slice_count += 1
    if slice_count < count:
        raise ValueError("fewer slices than the record names")
    return text
