"""Reads JSON text that somebody else wrote: only what is decoded in one short step. Pure.

A decoder holds the interpreter until it is done, also in a thread. So the values of a text are
counted before, in steps between which other threads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from memory.conversation.json_strings import mask_escapes
from memory.conversation.steps import end_step

# A millisecond, if it is nothing but short strings.
STEP_BYTES = 1 << 16
# So few are decoded at once, whatever they hold.
SURE_BYTES = 1 << 15
# Of a text inside a text, such as the arguments of a call.
MOST_VALUES = 100_000


class TooManyValues(msgspec.DecodeError):
    """A text with more values than are decoded in one short step; the message says how many."""


class JsonStep(NamedTuple):
    """A piece of a JSON text.

    at: where it begins. depth: of lists and objects around its beginning. parts: what stands
    between its quotes; the first, third, ... part is outside of strings.
    """

    at: int
    depth: int
    parts: list[bytes]


def decode_foreign(text: str | bytes, max_values: int = MOST_VALUES) -> Any:
    """Decode a text of at most `max_values` values.

    Raises TooManyValues, msgspec.DecodeError, UnicodeError, RecursionError.
    """
    if len(text) > SURE_BYTES:
        if isinstance(text, str):
            json_bytes = text.encode()
        else:
            json_bytes = text
        check_values(json_bytes, max_values)
    return msgspec.json.decode(text)


def check_values(text: bytes, max_values: int = MOST_VALUES) -> None:
    """Raise TooManyValues for a text of more than `max_values` values and names of members."""
    if _marks(text.count) + text.count(b":") <= max_values:
        return
    values = 0
    for step in json_steps(text):
        outside_strings = b"".join(step.parts[::2])
        # Strings are counted as well, so that a list of short ones ends this early.
        values += max(
            _marks(outside_strings.count) + outside_strings.count(b":"), len(step.parts) // 2
        )
        if values > max_values:
            raise TooManyValues(f"it has more than {max_values} values")


def json_steps(text: bytes) -> Iterator[JsonStep]:
    """Yield a JSON text in steps. No string of less than a step is cut.

    The inside of a longer string is passed over.
    """
    offset = depth = 0
    is_within_string = False
    while offset < len(text):
        end_step()
        # A backslash alone is no JSON: it is passed, so that this ends.
        chunk = (
            without_split_escapes(text[offset : offset + STEP_BYTES]) or text[offset : offset + 1]
        )
        parts = chunk.split(b'"')
        if is_within_string:
            # The rest of a long string: the next step begins behind its quote.
            is_within_string = len(parts) == 1
            offset += len(parts[0]) + (not is_within_string)
            continue
        size = len(chunk)
        # The last part is a string without its end.
        if len(parts) % 2 == 0:
            is_within_string = len(parts) == 2 and not parts[0]
            if not is_within_string:
                size -= len(parts[-1]) + 1
            del parts[-1]
        yield JsonStep(offset, depth, parts)
        depth += depth_gained(parts[::2])
        offset += size


def depth_gained(text_parts: list[bytes]) -> int:
    """Return by how much deeper these parts of a text lead."""
    joined_text = b"".join(text_parts)
    opening_count = joined_text.count(b"{") + joined_text.count(b"[")
    return opening_count - joined_text.count(b"}") - joined_text.count(b"]")


def _marks(count: Callable[[bytes], int]) -> int:
    """Count what stands before each value but the first."""
    return count(b",") + count(b"{") + count(b"[")


def without_split_escapes(chunk: bytes) -> bytes:
    """Return the piece with other characters for escaped quotes.

    An escape that its end splits is left out.
    """
    masked = mask_escapes(chunk)
    if masked.endswith(b"\\"):
        return masked[:-1]
    return masked
