"""Encodes JSON that holds very long strings, such as images, in short steps. Pure.

To encode an image of 60 MiB in one step holds the interpreter lock for a fifth of a second, and
nobody else is served meanwhile. So such strings are encoded in slices, each a part of its own, and
what has many elements group by group.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from memory.conversation.steps import end_step

# Of a string that is encoded in slices.
LONG_CHARACTERS = 1 << 20
SLICE_CHARACTERS = 1 << 19
# In UTF-8.
MOST_CHARACTER_BYTES = 4
# Of lists and objects in which such a string is looked for.
DEPTH = 8
# Of a list, encoded in one step: some 0.2 ms.
GROUP_ELEMENTS = 1024
_CONTAINERS = frozenset((dict, list))
_encode = msgspec.json.Encoder().encode
# What stands for a long string, unlike anything that a client says.
_PLACE = f"mnemogate-long-{secrets.token_hex(16)}"
_QUOTED_PLACE = _encode(_PLACE)


def encode_in_parts(value: Any) -> list[bytes]:
    """Return a value as JSON, in parts: one, if no string in it is very long."""
    return list(encode_part_by_part(value))


def encode_part_by_part(value: Any) -> Iterator[bytes]:
    """Yield a value as JSON in the parts of `encode_in_parts`, each made as it is asked for."""
    for part in split_long(value):
        yield part if isinstance(part, bytes) else part.encode()


class TextSlice(NamedTuple):
    """A slice of a long string, which begins at a character of it."""

    text: str
    start: int

    def encode(self) -> bytes:
        """Return the slice as it stands in JSON."""
        text = _encode(self.text[self.start : self.start + SLICE_CHARACTERS])[1:-1]
        end_step()
        return text


def split_long(value: Any) -> list[bytes | TextSlice]:
    """Return a value as JSON in parts, with the slices of its very long strings not encoded."""
    long_strings: list[str] = []
    parts: list[bytes | TextSlice] = []
    cut_json = encode_in_groups(_without_long(value, DEPTH, _get_place, long_strings))
    for text in long_strings:
        prefix, _, cut_json = cut_json.partition(_QUOTED_PLACE)
        parts.append(prefix + b'"')
        parts += [TextSlice(text, offset) for offset in range(0, len(text), SLICE_CHARACTERS)]
        cut_json = b'"' + cut_json
    return [*parts, cut_json]


def encode_in_groups(value: Any) -> bytes:
    """Return a value as JSON, of which many elements are not encoded in one step.

    100,000 parts of one message hold the interpreter lock for some 15 ms.
    """
    json_text = bytearray()
    _add_in_groups(value, DEPTH, json_text)
    return bytes(json_text)


def _add_in_groups(value: Any, depth: int, json_text: bytearray) -> None:
    if not (depth and _is_nested(value)):
        json_text += _encode(value)
    elif type(value) is dict:
        separator = b"{"
        for name, member in value.items():
            json_text += b"%b%b:" % (separator, _encode(name))
            _add_in_groups(member, depth - 1, json_text)
            end_step()
            separator = b","
        json_text += b"}"
    else:
        _add_elements(value, depth, json_text)


def _add_elements(values: list[Any], depth: int, json_text: bytearray) -> None:
    separator = b"["
    for is_nested, elements in itertools.groupby(values, _is_nested):
        run = list(elements)
        size = 1 if is_nested else GROUP_ELEMENTS
        for start in range(0, len(run), size):
            json_text += separator
            if is_nested:
                _add_in_groups(run[start], depth - 1, json_text)
            else:
                json_text += _encode(run[start : start + size])[1:-1]
            end_step()
            separator = b","
    json_text += b"]"


def _is_nested(value: Any) -> bool:
    """Tell whether a list or an object has elements that have elements, or very many."""
    if type(value) not in _CONTAINERS:
        return False
    members = value.values() if type(value) is dict else value
    return len(members) > GROUP_ELEMENTS or not _CONTAINERS.isdisjoint(map(type, members))


def long_size(value: Any) -> int:
    """Return how many bytes the very long strings of a value take at most, 0 if there are none."""
    long_strings: list[str] = []
    _without_long(value, DEPTH, _get_place, long_strings)
    return sum(map(size_at_most, long_strings))


def size_at_most(text: str) -> int:
    """Return how many bytes a text takes at most in UTF-8, at no cost."""
    return len(text) if text.isascii() else len(text) * MOST_CHARACTER_BYTES


def name_long_strings(value: Any, name: str) -> tuple[Any, list[str]]:
    """Return a value with a name for each very long string, and these strings in order.

    name: what each of their names begins with; its number follows.
    """
    long_strings: list[str] = []
    return _without_long(value, DEPTH, (name + "{}").format, long_strings), long_strings


def put_long_strings_back(value: Any, strings: Mapping[str, str], depth: int = DEPTH) -> Any:
    """Return a value with the strings that `name_long_strings` named."""
    if type(value) is str:
        return strings.get(value, value)
    if not depth:
        return value
    if type(value) is dict:
        return {k: put_long_strings_back(v, strings, depth - 1) for k, v in value.items()}
    if type(value) is list:
        return [put_long_strings_back(v, strings, depth - 1) for v in value]
    return value


def _without_long(
    value: Any, depth: int, name: Callable[[int], str], long_strings: list[str]
) -> Any:
    """Return the value with names for very long strings, added to `long_strings` in order.

    A value without such strings is returned itself. name: tells the one of a number.
    """
    if type(value) is str and len(value) > LONG_CHARACTERS:
        long_strings.append(value)
        return name(len(long_strings) - 1)
    if not depth:
        return value
    previous_count = len(long_strings)
    if type(value) is dict:
        end_step()
        items = {k: _without_long(v, depth - 1, name, long_strings) for k, v in value.items()}
        if len(long_strings) > previous_count:
            return items
        return value
    if type(value) is list:
        values = [_without_long(v, depth - 1, name, long_strings) for v in value]
        if len(long_strings) > previous_count:
            return values
        return value
    return value


def _get_place(_: int) -> str:
    return _PLACE
