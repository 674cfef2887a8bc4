"""A few members of a JSON object, found in short steps without decoding the rest. Pure.

A decoder holds the interpreter for as long as it reads: 150 ms for 60 MiB of empty objects, seconds
for an object of millions of members, also in a thread. Here no step takes longer than some
milliseconds, whatever the text holds. The text is not checked: whoever gets it next does that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

import msgspec

from memory.conversation.foreign_json import STEP_BYTES, depth_gained, json_steps

VALUE_BYTES = 1 << 16  # of a value that is read
FEW_PARTS = 1000  # of a step; a list of more is searched slower than the text
BEFORE_VALUE = (b":", b" ", b"\n", b"\r", b"\t", b"")
COLON_BYTES = 1 << 12  # in which the colon stands behind a name, and the value behind the colon
MOST_CANDIDATES = 10_000  # places of one text where such a name stands, at any depth
_opening = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_colon = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_read_value = json.JSONDecoder(strict=False).raw_decode


class UnreadableMembers(ValueError):
    """A text whose members cannot be found in time; the message says why."""


def find_members(text: bytes, names: Collection[bytes]) -> dict[bytes, int]:
    """Return where the values of these members of an object begin.

    names: without characters that JSON escapes. A member that stands twice counts where it stands
    last, as decoders have it. Raises UnreadableMembers.
    """
    if not _opening.match(text, 0, COLON_BYTES):
        raise UnreadableMembers("it is no JSON object")
    places: dict[bytes, int] = {}
    candidates = 0
    for start, depth, parts in json_steps(text):
        end = start + STEP_BYTES
        for name in names:
            if len(parts) > FEW_PARTS and text.find(b'"%b"' % name, start, end) < 0:
                continue
            for place, inner in _candidates(parts, name):
                candidates += 1
                if candidates > MOST_CANDIDATES:
                    raise UnreadableMembers(
                        f"names like `{name.decode()}` stand in more than {MOST_CANDIDATES} places"
                    )
                behind = start + place
                colon = _colon.match(text, behind, behind + COLON_BYTES)
                if depth + inner == 1 and colon:
                    places[name] = colon.end()
    return places


def value_end(text: bytes, start: int, most: int = VALUE_BYTES) -> int:
    """Return where the value that begins at `start` ends.

    Raises UnreadableMembers for one of more than `most` bytes, and for what is no value.
    """
    characters = text[start : start + most].decode("utf-8", "surrogateescape")
    try:
        _, end = _read_value(characters)
    except (ValueError, RecursionError) as e:
        raise UnreadableMembers(f"no value of at most {most} bytes") from e
    return start + len(characters[:end].encode("utf-8", "surrogateescape"))


def read_string(text: bytes, start: int) -> str | None:
    """Return the string that begins at `start`; None for another value, or a very long one."""
    try:
        value = msgspec.json.decode(text[start : value_end(text, start)])
    except (UnreadableMembers, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, str) else None


def _candidates(parts: list[bytes], name: bytes) -> Iterator[tuple[int, int]]:
    """Yield where strings of this name end, with their quote, and how deep, within the step.

    Those with something else than a colon behind them are left out.
    """
    at = seen = place = depth = 0
    while True:
        try:
            found = parts.index(name, at)
        except ValueError:
            return
        at = found + 1
        if found % 2 and parts[at][:1] in BEFORE_VALUE:
            place += sum(map(len, parts[seen:at])) + at - seen
            depth += depth_gained(parts[seen + seen % 2 : at : 2])
            seen = at
            yield place, depth
