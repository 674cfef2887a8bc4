"""A few members of a JSON object, found or replaced in short steps without decoding it. Pure.

A decoder holds the interpreter for as long as it reads: 150 ms for 60 MiB of empty objects, seconds
for an object of millions of members, also in a thread. Here no step takes longer than some
milliseconds, whatever the text holds. The text is not checked: whoever gets it next does that.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import msgspec

from memory.conversation.foreign_json import (
    STEP_BYTES,
    depth_gained,
    json_steps,
    without_split_escapes,
)

# Of a value that is read.
VALUE_BYTES = 1 << 16
# Of a step; a list of more is searched slower than the text.
FEW_PARTS = 1000
BEFORE_VALUE = (b":", b" ", b"\n", b"\r", b"\t", b"")
# In which the colon stands behind a name, and the value behind the colon.
COLON_BYTES = 1 << 12
# That an editor holds back for the rest of a value.
HELD_BYTES = 1 << 12
# Of one text, in which a member stands once.
MOST_EDITS = 16
# Places of one text where such a name stands, at any depth.
MOST_CANDIDATES = 10_000
_opening = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_colon = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_read_value = json.JSONDecoder(strict=False).raw_decode


class RepeatedMember(ValueError):
    """An object with two members of one name; the message is the name."""


class UnreadableMembers(ValueError):
    """A text whose members cannot be found in time; the message says why."""


def check_names_once(text: bytes, matters: Callable[[str], bool]) -> None:
    """Raise RepeatedMember if an object of a JSON text has a member twice that matters.

    Decoders take the last of them, most of them. The text was weighed and decoded before.
    """

    def check_object(members: list[tuple[str, None]]) -> None:
        names = [name for name, _ in members]
        if len(set(names)) < len(names):
            for name, times in Counter(names).items():
                if times > 1 and matters(name):
                    raise RepeatedMember(name)

    # Numbers stay texts: to read a long one takes long. Nothing of an object is kept.
    decoder = json.JSONDecoder(
        object_pairs_hook=check_object, parse_int=str, parse_float=str, strict=False
    )
    decoder.decode(text.decode("utf-8", "surrogatepass").lstrip("\ufeff"))


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
            for place, inner_depth in _candidates(parts, name):
                candidates += 1
                if candidates > MOST_CANDIDATES:
                    raise UnreadableMembers(
                        f"names like `{name.decode()}` stand in more than {MOST_CANDIDATES} places"
                    )
                name_end = start + place
                colon = _colon.match(text, name_end, name_end + COLON_BYTES)
                if depth + inner_depth == 1 and colon:
                    places[name] = colon.end()
    return places


def value_end(text: bytes, start: int, max_bytes: int = VALUE_BYTES) -> int:
    """Return where the value that begins at `start` ends.

    Raises UnreadableMembers for one of more than `max_bytes` bytes, and for what is no value.
    """
    characters = text[start : start + max_bytes].decode("utf-8", "surrogateescape")
    try:
        _, end = _read_value(characters)
    except (ValueError, RecursionError) as e:
        raise UnreadableMembers(f"no value of at most {max_bytes} bytes") from e
    return start + len(characters[:end].encode("utf-8", "surrogateescape"))


def read_string(text: bytes, start: int) -> str | None:
    """Return the string that begins at `start`; None for another value, or a very long one."""
    try:
        value = msgspec.json.decode(text[start : value_end(text, start)])
    except (UnreadableMembers, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if isinstance(value, str):
        return value
    return None


def _candidates(parts: list[bytes], name: bytes) -> Iterator[tuple[int, int]]:
    """Yield where strings of this name end, with their quote, and how deep, within the step.

    Those with something else than a colon behind them are left out.
    """
    at = measured_parts = place = depth = 0
    while True:
        try:
            part_index = parts.index(name, at)
        except ValueError:
            return
        at = part_index + 1
        if part_index % 2 and parts[at][:1] in BEFORE_VALUE:
            place += sum(map(len, parts[measured_parts:at])) + at - measured_parts
            depth += depth_gained(parts[measured_parts + measured_parts % 2 : at : 2])
            measured_parts = at
            yield place, depth


class MemberEditor:
    """Replaces the value of one member of an object while its text passes, in pieces of any length.

    name: without characters that JSON escapes. value: as JSON. The member may stand anywhere at the
    top of the object. Little is held back, and of the rest no byte is changed.
    """

    def __init__(self, name: bytes, value: bytes) -> None:
        self._name = name
        self._value = value
        self._held_text = b""
        self._depth = 0
        self._is_within_string = False
        self._edits_left = MOST_EDITS

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; return what can be passed on."""
        return self._edit(self._held_text + data, is_last=False)

    def end(self) -> bytes:
        """Return the rest when no more comes."""
        return self._edit(self._held_text, is_last=True)

    def _edit(self, text: bytes, *, is_last: bool) -> bytes:
        out: list[bytes] = []
        while self._edits_left:
            end, value = self._scan(text, is_last=is_last)
            out.append(text[:end])
            text = text[end:]
            if value is None:
                break
            out.append(self._value)
            text = text[value:]
            self._edits_left -= 1
        if is_last or not self._edits_left:
            self._held_text = b""
        else:
            self._held_text = text
        return b"".join([*out, b"" if self._held_text else text])

    def _scan(self, text: bytes, *, is_last: bool) -> tuple[int, int | None]:
        """Return how much of a text is as it should be, and how long the value is that follows.

        None where no value follows: what is left then waits for more.
        """
        parts = without_split_escapes(text).split(b'"')
        start = 0
        if self._is_within_string:
            start = len(parts[0]) + 1
            if len(parts) == 1:
                return start - 1, None
            self._is_within_string = False
            del parts[0]
        size = start + sum(map(len, parts)) + len(parts) - 1
        open_string = b""
        # The last part is a string without its end.
        if len(parts) % 2 == 0:
            open_string = parts.pop()
            size -= len(open_string) + 1
        for place, inner_depth in _candidates(parts, self._name):
            if self._depth + inner_depth != 1:
                continue
            name_end = start + place
            value = self._value_behind(text, name_end, is_last=is_last)
            if value is not None:
                self._depth = 1
                begin, end = value
                if end:
                    return (begin, end - begin)
                return (name_end - len(self._name) - 2, None)
        self._depth += depth_gained(parts[::2])
        if size < len(text) and len(open_string) > len(self._name):
            self._is_within_string = True
            size += len(open_string) + 1
        return size, None

    def _value_behind(self, text: bytes, at: int, *, is_last: bool) -> tuple[int, int] | None:
        """Return where the value behind a name begins and ends; an end of 0 if it is not whole yet.

        None where no value follows, or one that is too long.
        """
        waits = not is_last and len(text) - at < HELD_BYTES
        colon = _colon.match(text, at, at + HELD_BYTES)
        if colon is None:
            if waits and not text[at:].strip():
                return (0, 0)
            return None
        begin = colon.end()
        try:
            end = value_end(text, begin, HELD_BYTES)
        except UnreadableMembers:
            if waits:
                return (0, 0)
            return None
        if waits and end == len(text):
            return (0, 0)
        return (begin, end)
